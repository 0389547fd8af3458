// Copies of scattered rows into shared memory, 16 bytes a thread, by 32-bit address.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/shared_by_address.h"

namespace cachalot::cuda {

// 16 bytes of a row that is read on: the L2 fetches the whole line of 128 bytes.
__device__ inline void copy_16_of_line(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ inline void copy_16_to(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

}  // namespace cachalot::cuda
