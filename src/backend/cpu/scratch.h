// Memory of a queue that lives for one operation: a part all threads share and a part per thread.
// It grows before a run and is kept, so that after the first steps nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/memory_placement.h"

namespace cachalot::cpu {

class ScratchBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  // At least `bytes`, aligned to 64. What was there before is lost when it grows.
  std::byte* reserve(size_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      data_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
      capacity_ = bytes;
      prefer_huge_pages(data_.get(), bytes);
    }
    return data_.get();
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<std::byte, Free> data_;
  size_t capacity_ = 0;
};

class Scratch {
 public:
  explicit Scratch(int threads) : threads_(threads) {}

  // Called outside team.run; both invalidate what the last call of the same function returned.
  std::byte* reserve_shared(size_t bytes) { return shared_.reserve(bytes); }
  void reserve_per_thread(size_t bytes) {
    per_thread_bytes_ = (bytes + ScratchBuffer::kAlignment - 1) / ScratchBuffer::kAlignment *
                        ScratchBuffer::kAlignment;
    private_.reserve(per_thread_bytes_ * static_cast<size_t>(threads_));
  }

  // Inside team.run: the thread's own part.
  std::byte* of_thread(int thread) const {
    CACHALOT_CHECK(thread < threads_, "thread {} of {}", thread, threads_);
    return private_.data() + static_cast<size_t>(thread) * per_thread_bytes_;
  }

 private:
  int threads_;
  size_t per_thread_bytes_ = 0;
  ScratchBuffer shared_;
  ScratchBuffer private_;
};

// Hands out the pieces of one scratch area: first add up, then place.
class ScratchLayout {
 public:
  // Offset of a piece of `count` values of `size` bytes.
  size_t add(int64_t count, size_t size) {
    const size_t at = bytes_;
    const size_t bytes = static_cast<size_t>(count) * size;
    bytes_ += (bytes + ScratchBuffer::kAlignment - 1) / ScratchBuffer::kAlignment *
              ScratchBuffer::kAlignment;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

}  // namespace cachalot::cpu
