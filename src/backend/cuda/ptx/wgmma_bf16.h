// wgmma.mma_async of BF16: D [64, N] += A [64, 16] . B [16, N], exact products, FP32 sums.
//
// All 128 threads of a warpgroup start one together. It runs by itself: fence before the first
// (and after touching d or a register A), commit, and wait before reading d.
//
// Where thread t keeps its part, w = t / 32 (of 4), i = t % 32:
//   D   d[4 j + 0, 1]   row 16 w + i / 4,      columns 8 j + i % 4 * 2 + 0, 1
//       d[4 j + 2, 3]   row 16 w + i / 4 + 8,  the same columns
//   A in registers, two values each, the lower column in the lower half:
//       a[0], a[1]      row 16 w + i / 4 and that + 8,  columns i % 4 * 2 + 0, 1
//       a[2], a[3]      the same rows, columns + 8
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// How an operand lies in shared memory: K the dimension that is summed over, contiguous, or the
// other one (rows of A, columns of B).
enum class Contiguous { k = 0, other = 1 };

// The N / 2 registers of d as operands of asm, and their names.
#define CACHALOT_BF16_D_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CACHALOT_BF16_D_8(i) CACHALOT_BF16_D_4(i), CACHALOT_BF16_D_4((i) + 4)
#define CACHALOT_BF16_D_16(i) CACHALOT_BF16_D_8(i), CACHALOT_BF16_D_8((i) + 8)
#define CACHALOT_BF16_D_32(i) CACHALOT_BF16_D_16(i), CACHALOT_BF16_D_16((i) + 16)
#define CACHALOT_BF16_D_64(i) CACHALOT_BF16_D_32(i), CACHALOT_BF16_D_32((i) + 32)
#define CACHALOT_BF16_D_128(i) CACHALOT_BF16_D_64(i), CACHALOT_BF16_D_64((i) + 64)
#define CACHALOT_BF16_NAMES_4 "%0,%1,%2,%3"
#define CACHALOT_BF16_NAMES_8 CACHALOT_BF16_NAMES_4 ",%4,%5,%6,%7"
#define CACHALOT_BF16_NAMES_16 CACHALOT_BF16_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define CACHALOT_BF16_NAMES_32 \
  CACHALOT_BF16_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CACHALOT_BF16_NAMES_64                                                \
  CACHALOT_BF16_NAMES_32                                                      \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49," \
  "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define CACHALOT_BF16_NAMES_128                                               \
  CACHALOT_BF16_NAMES_64                                                      \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81," \
  "%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,"  \
  "%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,"    \
  "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// REGISTERS = N / 2. The operands after d's registers: what A takes, B, whether to accumulate, how
// B lies.
#define CACHALOT_WGMMA_BF16(N, REGISTERS, A, B, ACCUMULATE, LAYOUTS, ...)  \
  if constexpr (kN == N) {                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE            \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N              \
                 "k16.f32.bf16.bf16 {" CACHALOT_BF16_NAMES_##REGISTERS     \
                 "}, " A ", " B ", p, 1, 1, " LAYOUTS ";\n}"               \
                 : CACHALOT_BF16_D_##REGISTERS(0)                          \
                 : __VA_ARGS__, "l"(b), "r"(static_cast<int>(accumulate)), \
                   "n"(static_cast<int>(kB)));                             \
  }

// d += a . b, or d = a . b without `accumulate`; a and b are descriptors of shared memory.
template <int kN, Contiguous kA = Contiguous::k, Contiguous kB = Contiguous::k>
__device__ __forceinline__ void wgmma_bf16(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                           bool accumulate) {
  static_assert(kN >= 8 && kN <= 256 && (kN & (kN - 1)) == 0);
#define CACHALOT_SHARED_A "n"(static_cast<int>(kA)), "l"(a)
  CACHALOT_WGMMA_BF16(8, 4, "%5", "%6", "%7", "%4, %8", CACHALOT_SHARED_A)
  CACHALOT_WGMMA_BF16(16, 8, "%9", "%10", "%11", "%8, %12", CACHALOT_SHARED_A)
  CACHALOT_WGMMA_BF16(32, 16, "%17", "%18", "%19", "%16, %20", CACHALOT_SHARED_A)
  CACHALOT_WGMMA_BF16(64, 32, "%33", "%34", "%35", "%32, %36", CACHALOT_SHARED_A)
  CACHALOT_WGMMA_BF16(128, 64, "%65", "%66", "%67", "%64, %68", CACHALOT_SHARED_A)
  CACHALOT_WGMMA_BF16(256, 128, "%129", "%130", "%131", "%128, %132", CACHALOT_SHARED_A)
#undef CACHALOT_SHARED_A
}

// The same with A in registers.
template <int kN, Contiguous kB = Contiguous::k>
__device__ __forceinline__ void wgmma_bf16(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
  static_assert(kN >= 8 && kN <= 256 && (kN & (kN - 1)) == 0);
#define CACHALOT_REGISTER_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
  CACHALOT_WGMMA_BF16(8, 4, "{%4,%5,%6,%7}", "%8", "%9", "%10", CACHALOT_REGISTER_A)
  CACHALOT_WGMMA_BF16(16, 8, "{%8,%9,%10,%11}", "%12", "%13", "%14", CACHALOT_REGISTER_A)
  CACHALOT_WGMMA_BF16(32, 16, "{%16,%17,%18,%19}", "%20", "%21", "%22", CACHALOT_REGISTER_A)
  CACHALOT_WGMMA_BF16(64, 32, "{%32,%33,%34,%35}", "%36", "%37", "%38", CACHALOT_REGISTER_A)
  CACHALOT_WGMMA_BF16(128, 64, "{%64,%65,%66,%67}", "%68", "%69", "%70", CACHALOT_REGISTER_A)
  CACHALOT_WGMMA_BF16(256, 128, "{%128,%129,%130,%131}", "%132", "%133", "%134",
                      CACHALOT_REGISTER_A)
#undef CACHALOT_REGISTER_A
}

#undef CACHALOT_WGMMA_BF16
#undef CACHALOT_BF16_D_4
#undef CACHALOT_BF16_NAMES_4
#undef CACHALOT_BF16_D_8
#undef CACHALOT_BF16_NAMES_8
#undef CACHALOT_BF16_D_16
#undef CACHALOT_BF16_NAMES_16
#undef CACHALOT_BF16_D_32
#undef CACHALOT_BF16_NAMES_32
#undef CACHALOT_BF16_D_64
#undef CACHALOT_BF16_NAMES_64
#undef CACHALOT_BF16_D_128
#undef CACHALOT_BF16_NAMES_128

}  // namespace cachalot::cuda
