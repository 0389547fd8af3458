#include "backend/cpu/kernels/limits.inc.h"

namespace cachalot::cpu {
namespace {

// VNNI is a feature of its own: the oldest AVX-512 CPUs lack it, so supports(PeakLoop) asks.
__attribute__((target("avx512vnni"))) void int8_dot(int64_t rounds, void* sink) {
  __m512i sums[kChains] = {};
#pragma GCC unroll 24
  for (auto& sum : sums) CACHALOT_OPAQUE(sum);
  __m512i bytes = _mm512_set1_epi8(1);
  CACHALOT_OPAQUE(bytes);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], bytes, bytes);
  }
  // Unrolled as well, or else the loop above stores every sum in every round (GCC 12).
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}

}  // namespace

const LimitKernels kAvx512LimitKernels = {
    .matmul_path = "fp32_fma",
    .read = read,
    .peaks = {{"fp32_fma", fp32_fma, kFp32Operations}, {"int8_dot", int8_dot, 2 * kChains * 64}}};

}  // namespace cachalot::cpu
