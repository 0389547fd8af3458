// Sums that the blocks of a kernel leave for one another in memory, as the complements of their
// bits. 0 is a sum that is not there yet: no sum ends in the NaN whose complement that is. So a sum
// needs no other signal than itself, no fence and no counter. All are 0 between operations.
//
// Whoever waits may: the blocks of such a kernel are fewer than the multiprocessors, and the next
// kernel's start only after all of these have. For .cu files.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

__device__ inline void leave_sum(uint32_t* at, float sum) {
  *static_cast<volatile uint32_t*>(at) = ~__float_as_uint(sum);
}

// kParts sums, `stride` words apart, once all are there. Leaves zeros behind.
template <int kParts>
__device__ inline void take_sums(float (&parts)[kParts], uint32_t* from, int64_t stride) {
  volatile uint32_t* const words = from;
  uint32_t bits[kParts];
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int i = 0; i < kParts; ++i) bits[i] = words[i * stride];
#pragma unroll
    for (int i = 0; i < kParts; ++i) complete &= bits[i] != 0;
  } while (!complete);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    parts[i] = __uint_as_float(~bits[i]);
    words[i * stride] = 0;
  }
}

}  // namespace cachalot::cuda
