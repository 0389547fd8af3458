// Memory for a step's temporaries: a bump allocator whose size a planning run has measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "tensor/memory.h"
#include "tensor/planned_memory.h"
#include "tensor/view.h"

namespace cachalot {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;

  // Hands out addresses nobody may touch, those of PlannedMemory::arena, and remembers the peak.
  static Arena planning() { return Arena(); }

  explicit Arena(size_t bytes, const MemorySpace& memory = host_memory())
      : block_(memory.allocate(bytes + kAlignment), {&memory}), capacity_(bytes) {
    CACHALOT_CHECK(block_ != nullptr, "{} bytes of workspace", bytes);
    const auto at = reinterpret_cast<uintptr_t>(block_.get());
    data_ = static_cast<std::byte*>(block_.get()) + (kAlignment - at % kAlignment) % kAlignment;
  }

  template <class T>
  View<T> allocate(Shape shape) {
    const size_t bytes = (static_cast<size_t>(shape.elements()) * sizeof(T) + kAlignment - 1) /
                         kAlignment * kAlignment;
    const size_t at = used_;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    CACHALOT_CHECK(!data_ || used_ <= capacity_, "arena of {} bytes, {} wanted", capacity_, used_);
    return {data_ ? reinterpret_cast<T*>(data_ + at) : planned_address<T>(PlannedMemory::arena, at),
            shape};
  }

  size_t mark() const { return used_; }
  void release_to(size_t mark) { used_ = mark; }
  size_t peak() const { return peak_; }

 private:
  Arena() = default;

  std::unique_ptr<void, ReleaseTo> block_;
  std::byte* data_ = nullptr;  // into the block
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
