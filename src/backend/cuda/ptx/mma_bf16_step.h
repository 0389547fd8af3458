// mma_bf16() that the compiler may move: between products of one sum, each of which waits for the
// one before, it puts other work. Who keeps what: mma_bf16.h.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

__device__ inline void mma_bf16_step(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace cachalot::cuda
