// m64nNk32: d (+)= A . B^T, A [64, 32] and B [N, 32] in E4M3, d in FP32; N = 2 * the registers of
// d.
//
// wgmma_fp8(d, a, b, add): both operands in shared memory, given by descriptors (wgmma.h).
// wgmma_fp8(d, a registers, b, add): A in registers; thread (warp w of the group, lane l) has bytes
//   a[2 * c + h] = A[16 * w + 8 * h + l / 4][16 * c + 4 * (l % 4) .. + 3]   (c, h = 0, 1)
// `add` false: d is overwritten. The products run until wgmma_wait().
#pragma once

#include "backend/cuda/ptx/wgmma.h"

namespace cachalot::cuda {

// The names of 4 .. 128 accumulator registers in inline PTX, and the operands they stand for.
#define CACHALOT_NAMES_4 "%0, %1, %2, %3"
#define CACHALOT_NAMES_8 CACHALOT_NAMES_4 ", %4, %5, %6, %7"
#define CACHALOT_NAMES_16 CACHALOT_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CACHALOT_NAMES_32                                                    \
  CACHALOT_NAMES_16                                                          \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"
#define CACHALOT_NAMES_64                                                    \
  CACHALOT_NAMES_32                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
  "%60, %61, %62, %63"
#define CACHALOT_NAMES_128                                                   \
  CACHALOT_NAMES_64                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
  "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "   \
  "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "   \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
  "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CACHALOT_SUMS_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CACHALOT_SUMS_8(d, i) CACHALOT_SUMS_4(d, i), CACHALOT_SUMS_4(d, (i) + 4)
#define CACHALOT_SUMS_16(d, i) CACHALOT_SUMS_8(d, i), CACHALOT_SUMS_8(d, (i) + 8)
#define CACHALOT_SUMS_32(d, i) CACHALOT_SUMS_16(d, i), CACHALOT_SUMS_16(d, (i) + 16)
#define CACHALOT_SUMS_64(d, i) CACHALOT_SUMS_32(d, i), CACHALOT_SUMS_32(d, (i) + 32)
#define CACHALOT_SUMS_128(d, i) CACHALOT_SUMS_64(d, i), CACHALOT_SUMS_64(d, (i) + 64)

#define CACHALOT_WGMMA_FP8(N, COUNT, FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH)                \
  __device__ inline void wgmma_fp8(float(&d)[COUNT], uint64_t a, uint64_t b, bool add) {        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #THIRD                                    \
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N                                         \
                 "k32.f32.e4m3.e4m3 {" CACHALOT_NAMES_##COUNT "}, %" #FIRST ", %" #SECOND       \
                                                              ", p, 1, 1;\n}\n"                 \
                 : CACHALOT_SUMS_##COUNT(d, 0)                                                  \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                 \
  }                                                                                             \
  __device__ inline void wgmma_fp8(float(&d)[COUNT], const uint32_t(&a)[4], uint64_t b,         \
                                   bool add) {                                                  \
    asm volatile(                                                                               \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #SIXTH                                             \
        ", 0;\n"                                                                                \
        "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" CACHALOT_NAMES_##COUNT     \
        "}, {%" #FIRST ", %" #SECOND ", %" #THIRD ", %" #FOURTH "}, %" #FIFTH ", p, 1, 1;\n}\n" \
        : CACHALOT_SUMS_##COUNT(d, 0)                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));      \
  }

CACHALOT_WGMMA_FP8(8, 4, 4, 5, 6, 7, 8, 9)
CACHALOT_WGMMA_FP8(16, 8, 8, 9, 10, 11, 12, 13)
CACHALOT_WGMMA_FP8(32, 16, 16, 17, 18, 19, 20, 21)
CACHALOT_WGMMA_FP8(64, 32, 32, 33, 34, 35, 36, 37)
CACHALOT_WGMMA_FP8(128, 64, 64, 65, 66, 67, 68, 69)
CACHALOT_WGMMA_FP8(256, 128, 128, 129, 130, 131, 132, 133)
#undef CACHALOT_WGMMA_FP8
#undef CACHALOT_NAMES_4
#undef CACHALOT_SUMS_4
#undef CACHALOT_NAMES_8
#undef CACHALOT_SUMS_8
#undef CACHALOT_NAMES_16
#undef CACHALOT_SUMS_16
#undef CACHALOT_NAMES_32
#undef CACHALOT_SUMS_32
#undef CACHALOT_NAMES_64
#undef CACHALOT_SUMS_64
#undef CACHALOT_NAMES_128
#undef CACHALOT_SUMS_128

}  // namespace cachalot::cuda
