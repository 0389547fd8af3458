// Pinned memory through which tensors go between the host and the device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/queue.h"
#include "base/check.h"

namespace cachalot::hybrid {

class Staging {
 public:
  // What a tensor takes of it.
  static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

  // At least so many bytes. They are the same as last time, or larger ones if those were too few;
  // the smaller ones are kept, for a captured graph may use them.
  std::byte* reserve(size_t bytes) {
    if (blocks_.empty() || blocks_.back().bytes < bytes) {
      const MemorySpace& pinned = cuda::pinned_memory();
      std::unique_ptr<void, ReleaseTo> memory(pinned.allocate(bytes), {&pinned});
      CACHALOT_CHECK(memory != nullptr, "{} bytes of pinned memory", bytes);
      blocks_.push_back({std::move(memory), bytes});
    }
    return static_cast<std::byte*>(blocks_.back().memory.get());
  }

 private:
  struct Block {
    std::unique_ptr<void, ReleaseTo> memory;
    size_t bytes = 0;
  };
  std::vector<Block> blocks_;
};

}  // namespace cachalot::hybrid
