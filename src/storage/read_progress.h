// One read on its way: what to ask the system for next, and when it is complete. Direct reads are
// widened to whole blocks; reads may come back short.
#pragma once

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "base/check.h"
#include "storage/file_reader.h"

namespace cachalot {

// Two blocks: where an unpadded read of up to a block may lie.
class BounceBuffer {
 public:
  std::byte* get() {
    if (!memory_) memory_.reset(new (std::align_val_t{kDirectAlignment}) std::byte[kBytes]);
    return memory_.get();
  }
  static constexpr int64_t kBytes = 2 * kDirectAlignment;

 private:
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kDirectAlignment});
    }
  };
  std::unique_ptr<std::byte[], Free> memory_;
};

class ReadProgress {
 public:
  // `file` and `bounce` outlive the progress.
  void begin(const FileRead& read, const DirectFile& file, BounceBuffer& bounce) {
    read_ = read;
    file_ = &file;
    done_ = 0;
    const int64_t alignment = file.alignment();
    head_ = read.offset % alignment;
    end_ = (head_ + read.bytes + alignment - 1) / alignment * alignment;
    bounced_ = alignment > 1 && !read.padded &&
               (head_ != 0 || end_ != read.bytes ||
                reinterpret_cast<uintptr_t>(read.target) % static_cast<uintptr_t>(alignment) != 0);
    CACHALOT_CHECK(!bounced_ || end_ <= BounceBuffer::kBytes, "an unpadded read of {} bytes",
                   read.bytes);
    start_ = bounced_ ? bounce.get() : read.target - head_;
  }

  const FileRead& read() const { return read_; }

  // What is still to be asked for.
  int descriptor() const { return file_->descriptor(); }
  int64_t offset() const { return read_.offset - head_ + done_; }
  size_t bytes() const { return static_cast<size_t>(end_ - done_); }
  std::byte* target() const { return start_ + done_; }

  // After the system's answer: bytes read, or -errno. Empty: ask again for what is left.
  std::optional<Status> advance(int64_t answer) {
    if (answer == -EINTR || answer == -EAGAIN) return std::nullopt;
    if (answer < 0) {
      return fail("{}: cannot read {} bytes at offset {}: {}", file_->name(), bytes(), offset(),
                  std::strerror(static_cast<int>(-answer)));
    }
    done_ += answer;
    if (done_ >= head_ + read_.bytes) {
      if (bounced_) std::memcpy(read_.target, start_ + head_, static_cast<size_t>(read_.bytes));
      return Status();
    }
    // A direct read ends inside a block only where the file does.
    if (answer > 0 && done_ % file_->alignment() == 0) return std::nullopt;
    return fail(
        "{}: expected {} bytes at offset {}, but the file now ends at {}: it was cut short "
        "while in use",
        file_->name(), read_.bytes, read_.offset, offset());
  }

 private:
  FileRead read_;
  const DirectFile* file_ = nullptr;
  std::byte* start_ = nullptr;
  int64_t head_ = 0;  // bytes before read_.offset
  int64_t end_ = 0;   // bytes to read in all
  int64_t done_ = 0;
  bool bounced_ = false;
};

}  // namespace cachalot
