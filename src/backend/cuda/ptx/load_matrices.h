// ldmatrix: four 8 x 16-byte matrices from shared memory to the registers of a warp, as the
// operands of products lie.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// Lane i gives the address of row i % 8 of matrix i / 8, and gets bytes i % 4 * 4 .. + 3 of row
// i / 4 of each.
__device__ inline void load_matrices(uint32_t (&words)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

// Of matrices of 16-bit words: lane i gets those of column i / 4, of rows i % 4 * 2 and, above it,
// the next.
__device__ inline void load_matrices_transposed(uint32_t (&words)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

}  // namespace cachalot::cuda
