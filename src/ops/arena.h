// Memory for a step's temporaries: a bump allocator whose size a planning run has measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/memory_placement.h"
#include "tensor/planned_memory.h"
#include "tensor/view.h"

namespace cachalot {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;

  // Hands out addresses nobody may touch, those of PlannedMemory::arena, and remembers the peak.
  static Arena planning() { return Arena(); }

  explicit Arena(size_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}))),
        capacity_(bytes) {
    prefer_huge_pages(data_.get(), bytes);
  }

  template <class T>
  View<T> allocate(Shape shape) {
    const size_t bytes = (static_cast<size_t>(shape.elements()) * sizeof(T) + kAlignment - 1) /
                         kAlignment * kAlignment;
    const size_t at = used_;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    CACHALOT_CHECK(!data_ || used_ <= capacity_, "arena of {} bytes, {} wanted", capacity_, used_);
    return {data_ ? reinterpret_cast<T*>(data_.get() + at)
                  : planned_address<T>(PlannedMemory::arena, at),
            shape};
  }

  size_t mark() const { return used_; }
  void release_to(size_t mark) { used_ = mark; }
  size_t peak() const { return peak_; }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };

  Arena() = default;

  std::unique_ptr<std::byte, Free> data_;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
};

// Releases what was allocated after it was made.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release_to(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace cachalot
