#include "backend/cpu/kernels/limits.inc.h"

namespace cachalot::cpu {
namespace {

// Without a dot product of bytes: products to 16 bits in pairs, pairs to 32 bits, sum.
void int8_dot(int64_t rounds, void* sink) {
  constexpr int kSums = 10;
  __m256i sums[kSums] = {};
#pragma GCC unroll 24
  for (auto& sum : sums) CACHALOT_OPAQUE(sum);
  __m256i bytes = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (int i = 0; i < kSums; ++i) {
      CACHALOT_OPAQUE(bytes);
      const __m256i pairs = _mm256_maddubs_epi16(bytes, bytes);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  __builtin_memcpy(sink, &sums[0], sizeof sums[0]);
}

}  // namespace

const LimitKernels kAvx2LimitKernels = {
    .matmul_path = "fp32_fma",
    .read = read,
    .peaks = {{"fp32_fma", fp32_fma, kFp32Operations}, {"int8_dot", int8_dot, 2 * 10 * 32}}};

}  // namespace cachalot::cpu
