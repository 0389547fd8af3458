// FileReader: many reads in flight at once, answered in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/direct_file.h"

namespace cachalot {

struct FileRead;

class ReadListener {
 public:
  virtual ~ReadListener() = default;
  // From a thread of the reader, once per read. `status` names file and offset.
  virtual void read_done(const FileRead& read, const Status& status) = 0;
};

struct FileRead {
  size_t file = 0;  // index among the reader's files
  int64_t offset = 0;
  int64_t bytes = 0;  // at least 1
  std::byte* target = nullptr;
  // The bytes around `target` up to multiples of kDirectAlignment may be overwritten, and target
  // lies as far behind such a multiple as `offset`. Then nothing is copied. Without it at most
  // kDirectAlignment bytes.
  bool padded = false;
  ReadListener* listener = nullptr;
  uint64_t tag = 0;  // the listener's
};

class FileReader {
 public:
  virtual ~FileReader() = default;

  virtual std::string_view name() const = 0;  // "io_uring", "threads"
  // Queues the reads, in this order; at most `depth` are in flight. From any thread.
  virtual void start(std::span<const FileRead> reads) = 0;
};

enum class ReaderKind {
  best,      // io_uring where the kernel permits it, else threads
  io_uring,  // errors: not built in, not permitted
  threads,
};

inline constexpr int kDefaultReadDepth = 64;

// The files outlive the reader; every read is answered before the reader is destroyed.
Result<std::unique_ptr<FileReader>> make_file_reader(ReaderKind kind,
                                                     const std::vector<DirectFile>& files,
                                                     int depth = kDefaultReadDepth);

// The two kinds. A build without liburing has a make_uring_reader that says so.
Result<std::unique_ptr<FileReader>> make_uring_reader(const std::vector<DirectFile>& files,
                                                      int depth);
Result<std::unique_ptr<FileReader>> make_thread_reader(const std::vector<DirectFile>& files,
                                                       int depth);

}  // namespace cachalot
