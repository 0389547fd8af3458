// wgmma.mma_async of BF16 with A in registers and N in steps of 16, above 96 of 8: D [64, N] += A
// [64, 16] . B [16, N], exact products, FP32 sums. Where threads keep their parts and what to wait
// for: wgmma.h, wgmma_bf16.h. Tokens come in any number; N in powers of two would waste up to half.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// The operands of asm that are d's registers, and their names.
#define CACHALOT_STEP_D_8(i)                                                          \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define CACHALOT_STEP_D_16 CACHALOT_STEP_D_8(0), CACHALOT_STEP_D_8(8)
#define CACHALOT_STEP_D_24 CACHALOT_STEP_D_16, CACHALOT_STEP_D_8(16)
#define CACHALOT_STEP_D_32 CACHALOT_STEP_D_24, CACHALOT_STEP_D_8(24)
#define CACHALOT_STEP_D_40 CACHALOT_STEP_D_32, CACHALOT_STEP_D_8(32)
#define CACHALOT_STEP_D_48 CACHALOT_STEP_D_40, CACHALOT_STEP_D_8(40)
#define CACHALOT_STEP_D_56 CACHALOT_STEP_D_48, CACHALOT_STEP_D_8(48)
#define CACHALOT_STEP_D_64 CACHALOT_STEP_D_56, CACHALOT_STEP_D_8(56)
#define CACHALOT_STEP_D_72 CACHALOT_STEP_D_64, CACHALOT_STEP_D_8(64)
#define CACHALOT_STEP_D_80 CACHALOT_STEP_D_72, CACHALOT_STEP_D_8(72)
#define CACHALOT_STEP_D_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CACHALOT_STEP_D_52 CACHALOT_STEP_D_48, CACHALOT_STEP_D_4(48)
#define CACHALOT_STEP_D_60 CACHALOT_STEP_D_56, CACHALOT_STEP_D_4(56)
#define CACHALOT_STEP_D_68 CACHALOT_STEP_D_64, CACHALOT_STEP_D_4(64)
#define CACHALOT_STEP_D_76 CACHALOT_STEP_D_72, CACHALOT_STEP_D_4(72)
#define CACHALOT_STEP_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define CACHALOT_STEP_NAMES_16 CACHALOT_STEP_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define CACHALOT_STEP_NAMES_24 CACHALOT_STEP_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define CACHALOT_STEP_NAMES_32 CACHALOT_STEP_NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define CACHALOT_STEP_NAMES_40 CACHALOT_STEP_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define CACHALOT_STEP_NAMES_48 CACHALOT_STEP_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define CACHALOT_STEP_NAMES_56 CACHALOT_STEP_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define CACHALOT_STEP_NAMES_64 CACHALOT_STEP_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define CACHALOT_STEP_NAMES_72 CACHALOT_STEP_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"

#define CACHALOT_STEP_NAMES_80 CACHALOT_STEP_NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"

#define CACHALOT_STEP_NAMES_52 CACHALOT_STEP_NAMES_48 ",%48,%49,%50,%51"
#define CACHALOT_STEP_NAMES_60 CACHALOT_STEP_NAMES_56 ",%56,%57,%58,%59"
#define CACHALOT_STEP_NAMES_68 CACHALOT_STEP_NAMES_64 ",%64,%65,%66,%67"
#define CACHALOT_STEP_NAMES_76 CACHALOT_STEP_NAMES_72 ",%72,%73,%74,%75"

#define CACHALOT_WGMMA_STEP(N, D, NAMES, A, B, ACCUMULATE)                                         \
  if constexpr (kN == N) {                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                                    \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, {" A \
                 "}, " B ", p, 1, 1, 0;\n}"                                                        \
                 : D                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                             \
                   "r"(static_cast<int>(accumulate)));                                             \
  }

// d += a . b, or d = a . b without `accumulate`; b is a descriptor, K contiguous. N is 8, a
// multiple of 16 or, above 96, of 8.
template <int kN>
__device__ __forceinline__ void wgmma_bf16_step(float (&d)[kN / 2], const uint32_t (&a)[4],
                                                uint64_t b, bool accumulate) {
  static_assert(kN == 8 || kN % 16 == 0 || (kN % 8 == 0 && kN > 96));
  CACHALOT_WGMMA_STEP(8, CACHALOT_STEP_D_4(0), "%0,%1,%2,%3", "%4,%5,%6,%7", "%8", "%9")
  CACHALOT_WGMMA_STEP(16, CACHALOT_STEP_D_8(0), CACHALOT_STEP_NAMES_8, "%8,%9,%10,%11", "%12",
                      "%13")
  CACHALOT_WGMMA_STEP(32, CACHALOT_STEP_D_16, CACHALOT_STEP_NAMES_16, "%16,%17,%18,%19", "%20",
                      "%21")
  CACHALOT_WGMMA_STEP(48, CACHALOT_STEP_D_24, CACHALOT_STEP_NAMES_24, "%24,%25,%26,%27", "%28",
                      "%29")
  CACHALOT_WGMMA_STEP(64, CACHALOT_STEP_D_32, CACHALOT_STEP_NAMES_32, "%32,%33,%34,%35", "%36",
                      "%37")
  CACHALOT_WGMMA_STEP(80, CACHALOT_STEP_D_40, CACHALOT_STEP_NAMES_40, "%40,%41,%42,%43", "%44",
                      "%45")
  CACHALOT_WGMMA_STEP(96, CACHALOT_STEP_D_48, CACHALOT_STEP_NAMES_48, "%48,%49,%50,%51", "%52",
                      "%53")
  CACHALOT_WGMMA_STEP(104, CACHALOT_STEP_D_52, CACHALOT_STEP_NAMES_52, "%52,%53,%54,%55", "%56",
                      "%57")
  CACHALOT_WGMMA_STEP(112, CACHALOT_STEP_D_56, CACHALOT_STEP_NAMES_56, "%56,%57,%58,%59", "%60",
                      "%61")
  CACHALOT_WGMMA_STEP(120, CACHALOT_STEP_D_60, CACHALOT_STEP_NAMES_60, "%60,%61,%62,%63", "%64",
                      "%65")
  CACHALOT_WGMMA_STEP(128, CACHALOT_STEP_D_64, CACHALOT_STEP_NAMES_64, "%64,%65,%66,%67", "%68",
                      "%69")
  CACHALOT_WGMMA_STEP(136, CACHALOT_STEP_D_68, CACHALOT_STEP_NAMES_68, "%68,%69,%70,%71", "%72",
                      "%73")
  CACHALOT_WGMMA_STEP(144, CACHALOT_STEP_D_72, CACHALOT_STEP_NAMES_72, "%72,%73,%74,%75", "%76",
                      "%77")
  CACHALOT_WGMMA_STEP(152, CACHALOT_STEP_D_76, CACHALOT_STEP_NAMES_76, "%76,%77,%78,%79", "%80",
                      "%81")
  CACHALOT_WGMMA_STEP(160, CACHALOT_STEP_D_80, CACHALOT_STEP_NAMES_80, "%80,%81,%82,%83", "%84",
                      "%85")
}

#undef CACHALOT_WGMMA_STEP

#undef CACHALOT_STEP_D_4
#undef CACHALOT_STEP_D_52
#undef CACHALOT_STEP_NAMES_52
#undef CACHALOT_STEP_D_60
#undef CACHALOT_STEP_NAMES_60
#undef CACHALOT_STEP_D_68
#undef CACHALOT_STEP_NAMES_68
#undef CACHALOT_STEP_D_76
#undef CACHALOT_STEP_NAMES_76
#undef CACHALOT_STEP_D_8
#undef CACHALOT_STEP_NAMES_8
#undef CACHALOT_STEP_D_16
#undef CACHALOT_STEP_NAMES_16
#undef CACHALOT_STEP_D_24
#undef CACHALOT_STEP_NAMES_24
#undef CACHALOT_STEP_D_32
#undef CACHALOT_STEP_NAMES_32
#undef CACHALOT_STEP_D_40
#undef CACHALOT_STEP_NAMES_40
#undef CACHALOT_STEP_D_48
#undef CACHALOT_STEP_NAMES_48
#undef CACHALOT_STEP_D_56
#undef CACHALOT_STEP_NAMES_56
#undef CACHALOT_STEP_D_64
#undef CACHALOT_STEP_NAMES_64
#undef CACHALOT_STEP_D_72
#undef CACHALOT_STEP_D_80
#undef CACHALOT_STEP_NAMES_72
#undef CACHALOT_STEP_NAMES_80

}  // namespace cachalot::cuda
