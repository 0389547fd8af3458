// The experts' products with activations rounded to int8 (ops/expert_input.h), for
// generic and AVX2; with VNNI: matmul_vnni.inc.h.
//
// A block of 32 columns is multiplied in integers: twice an E2M1 value is one. Its sum, exact,
// joins by fma(sum, weight scale * activation scale, acc), blocks ascending; in eight lanes on
// AVX2, each with the sum of its own columns, in one for generic.
#pragma once

#include "backend/cpu/kernels/matmul_int8_common.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#if defined(__AVX2__)

// Low nibbles, then high ones: as load_doubled gives the weights.
constexpr int column_at(int i) { return i < 16 ? 2 * i : 2 * (i - 16) + 1; }

using Weights = __m256i;
using Sums = F32;

CACHALOT_INLINE Weights load_doubled(const uint8_t* codes) {
  const __m256i packed =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i nibbles = _mm256_and_si256(
      _mm256_srlv_epi32(packed, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(0x0F));
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubled)));
  return _mm256_shuffle_epi8(table, nibbles);
}

CACHALOT_INLINE Sums zero_sums() { return splat(0.0f); }

// The byte product wants one unsigned side: the weight's sign goes to the activation. Pairs are at
// most 2 * 12 * 127.
CACHALOT_INLINE Sums add_block(Sums sums, Weights w, const Int8Block& x, float scale) {
  const __m256i q = _mm256_load_si256(reinterpret_cast<const __m256i*>(x.q));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return fma(_mm256_cvtepi32_ps(fours), splat(scale * x.half_scale), sums);
}

CACHALOT_INLINE float total(Sums sums) { return sum(sums); }

#else

constexpr int column_at(int i) { return i; }

struct Weights {
  int8_t v[kBlock];
};
using Sums = float;

CACHALOT_INLINE Weights load_doubled(const uint8_t* codes) {
  Weights out;
  for (int i = 0; i < kBlock / 2; ++i) {
    out.v[2 * i] = kDoubled[codes[i] & 0xF];
    out.v[2 * i + 1] = kDoubled[codes[i] >> 4];
  }
  return out;
}

CACHALOT_INLINE Sums zero_sums() { return 0; }

CACHALOT_INLINE Sums add_block(Sums sum, const Weights& w, const Int8Block& x, float scale) {
  int32_t dot = 0;
  for (int i = 0; i < kBlock; ++i) dot += w.v[i] * x.q[i];
  return static_cast<float>(dot) * (scale * x.half_scale) + sum;
}

CACHALOT_INLINE float total(Sums sum) { return sum; }

#endif

constexpr int kInt8Rows = 4, kInt8Tokens = 2;

// kInt8Rows rows, decoded once for every kTokens tokens.
template <int kTokens>
void multiply_int8_tile(const Product& p, int64_t first, int64_t token) {
  const PackedWeight& w = p.weight;
  const int64_t blocks = w.columns / kBlock;
  const uint8_t* codes[kInt8Rows];
  const uint8_t* scales[kInt8Rows];
  for (int r = 0; r < kInt8Rows; ++r) {
    const int64_t row = clamped(first + r, p.last_row);
    codes[r] = w.data + row * w.row_bytes();
    scales[r] = w.row_scales + row * blocks;
  }
  const Int8Block* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const Int8Block*>(p.x[token + t]);
  Sums sums[kInt8Rows][kTokens];
  for (int r = 0; r < kInt8Rows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums[r][t] = zero_sums();
  }
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 4
    for (int r = 0; r < kInt8Rows; ++r) {
      if (b % 4 == 0) __builtin_prefetch(codes[r] + b * 16 + kInt8Rows * w.row_bytes());
      const Weights block = load_doubled(codes[r] + b * 16);
      const float scale = e8m0_value(scales[r][b]);
#pragma GCC unroll 2
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = add_block(sums[r][t], block, x[t][b], scale);
      }
    }
  }
  for (int r = 0; r < kInt8Rows && first + r < p.last_row; ++r) {
    for (int t = 0; t < kTokens; ++t) put(p, token + t, first + r, total(sums[r][t]));
  }
}

void multiply_int8(const Product& p, void*) {
  for (int64_t row = p.first_row; row < p.last_row; row += kInt8Rows) {
    for (int64_t t = 0; t < p.tokens; t += kInt8Tokens) {
      const int64_t now = p.tokens - t < kInt8Tokens ? p.tokens - t : kInt8Tokens;
      with_tokens<kInt8Tokens>(now, [&]<int kTokens>() { multiply_int8_tile<kTokens>(p, row, t); });
    }
  }
}

void quantize_int8(const bf16* x, int64_t columns, Format, void* prepared) {
  quantize_blocks(x, columns, column_at, static_cast<Int8Block*>(prepared));
}

constexpr MatmulKernels kInt8Table = int8_table(quantize_int8, multiply_int8, 0);

}  // namespace
}  // namespace cachalot::cpu
