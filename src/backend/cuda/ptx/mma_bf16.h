// mma.sync of BF16: D [16, 8] += A [16, 16] . B [16, 8], exact products, FP32 sums; one warp.
//
// Where lane i keeps its part:
//   d[0, 1], d[2, 3]   row i / 4, row i / 4 + 8;  columns i % 4 * 2 + 0, 1
//   a[0], a[1]         the same rows, K = i % 4 * 2 + 0, 1;  a[2], a[3]: K + 8
//   b[0], b[1]         column i / 4, K as in a[0] and a[2]
// The lower K (or column) is in the lower half of a register.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace cachalot::cuda
