#include "backend/cpu/kernels/limits.inc.h"

namespace cachalot::cpu {
namespace {

void bf16_dot(int64_t rounds, void* sink) {
  __m512 sums[kChains] = {};
#pragma GCC unroll 24
  for (auto& sum : sums) CACHALOT_OPAQUE(sum);
  __m512i ones = _mm512_set1_epi16(0x3F80);
  CACHALOT_OPAQUE(ones);
  const auto pairs = (__m512bh)ones;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], pairs, pairs);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}

}  // namespace

const LimitKernels kAvx512Bf16LimitKernels = {
    .matmul_path = "bf16_dot",
    .read = read,
    .peaks = {{"fp32_fma", fp32_fma, kFp32Operations}, {"bf16_dot", bf16_dot, 2 * kChains * 32}}};

}  // namespace cachalot::cpu
