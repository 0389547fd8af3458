#include "tensor/memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/memory_placement.h"

namespace cachalot {
namespace {

// Large blocks start at a page, small ones at a cache line. calloc takes large ones straight from
// the kernel: zero pages that become real when they are written.
void* allocate(size_t bytes) {
  void* memory = std::calloc(bytes > 0 ? bytes : 1, 1);
  // What is filled from its start on; smaller blocks would only grow.
  constexpr size_t kLarge = size_t{64} << 20;
  if (memory != nullptr && bytes >= kLarge) prefer_huge_pages(memory, bytes);
  return memory;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

const MemorySpace& host_memory() {
  static constexpr MemorySpace kHost{
      .allocate = allocate, .release = std::free, .copy = copy, .is_host = true};
  return kHost;
}

}  // namespace cachalot
