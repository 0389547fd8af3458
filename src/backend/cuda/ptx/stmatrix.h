// stmatrix: four 8 x 8 matrices of 16-bit numbers from the registers of a warp, as products leave
// them, to shared memory, transposed.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

// Lane i has, of each matrix, elements [i / 4][i % 4 * 2 + 0, 1] (the lower column in the lower
// half). Column c of matrix m is written to the 16 bytes at the `to` of lane 8 m + c.
__device__ inline void store_transposed(void* to, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(to)),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

}  // namespace cachalot::cuda
