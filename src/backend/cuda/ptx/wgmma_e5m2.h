// m64n32k32: d = A . B^T, A [64, 32] and B [32, 32] in E5M2, d in FP32. A in registers, as for
// wgmma_fp8(); B in shared memory, given by a descriptor (wgmma.h). The products run until
// wgmma_wait().
#pragma once

#include "backend/cuda/ptx/wgmma.h"

namespace cachalot::cuda {

__device__ inline void wgmma_e5m2(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e5m2.e5m2 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 0, 1, 1;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

}  // namespace cachalot::cuda
