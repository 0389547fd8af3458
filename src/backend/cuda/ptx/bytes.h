// Byte permutations that repeat signs.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// A byte each of the eight in `low` and `high` per hexadecimal digit of `pick`, the lowest first;
// of 8 more than a byte's number only its sign, eight times.
__device__ inline uint32_t picked_bytes(uint32_t low, uint32_t high, uint32_t pick) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(pick));
  return out;
}

}  // namespace cachalot::cuda
