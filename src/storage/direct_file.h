// A file opened for reads that go past the page cache, where the filesystem allows it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace cachalot {

// Offsets, lengths and addresses of direct reads are multiples of this: the largest logical block
// of disks in use.
inline constexpr int64_t kDirectAlignment = 4096;

class DirectFile {
 public:
  // Errors: it cannot be opened, or is not `bytes` long. `direct` false: through the page cache.
  static Result<DirectFile> open(const std::filesystem::path& path, int64_t bytes, bool direct);

  // Takes over an open descriptor, read as it is.
  static DirectFile adopt(int descriptor, std::string name);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) = delete;
  ~DirectFile();

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }
  // kDirectAlignment, or 1 through the page cache.
  int64_t alignment() const { return alignment_; }

 private:
  DirectFile(int descriptor, std::string name, int64_t alignment);

  int descriptor_;
  std::string name_;
  int64_t alignment_;
};

}  // namespace cachalot
