// Addresses of memory that is only planned: different for different tensors, never to be touched.
// Whoever surveys the model tells by them what an operation reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cachalot {

// Where each kind begins; none is as long as the distance to the next. No process is given memory
// there: user space ends at 2^47 and these lie above.
enum class PlannedMemory : uintptr_t {
  weights = uintptr_t{1} << 52,
  caches = uintptr_t{2} << 52,
  arena = uintptr_t{3} << 52,
  end = uintptr_t{4} << 52,
};

template <class T>
T* planned_address(PlannedMemory memory, size_t offset) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(memory) + offset);
}

inline bool is_in(PlannedMemory memory, const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address), first = static_cast<uintptr_t>(memory);
  return at >= first && at - first < uintptr_t{1} << 52;
}

}  // namespace cachalot
