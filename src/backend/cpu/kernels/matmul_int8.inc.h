// The experts' products with activations rounded to int8 (ops/expert_input.h), for
// generic and AVX2; with VNNI: matmul_vnni.inc.h.
//
// A block of 32 columns is multiplied in integers: twice an E2M1 value is one. Its sum, exact,
// joins by fma(sum, weight scale * activation scale, acc), blocks ascending.
#pragma once

#include "backend/cpu/kernels/matmul_int8_common.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#if defined(__AVX2__)

// Lanes are weight rows: a 32-bit word holds four columns of a row, as the byte product takes them,
// and nothing is added across lanes.
constexpr int kInt8Rows = kLanes, kInt8Tokens = 4;

// Of every eight columns the even ones come first, as nibbles come apart.
constexpr int column_at(int i) { return i / 8 * 8 + i % 4 * 2 + i / 4 % 2; }

// words[step * d] = word d of the eight rows that `rows` hold four apart.
CACHALOT_INLINE void transpose_words(const __m256i (&rows)[4], __m256i* words, int step) {
  const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]);
  const __m256i high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]);
  const __m256i high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  words[0] = _mm256_unpacklo_epi64(low01, low23);
  words[step] = _mm256_unpackhi_epi64(low01, low23);
  words[2 * step] = _mm256_unpacklo_epi64(high01, high23);
  words[3 * step] = _mm256_unpackhi_epi64(high01, high23);
}

// A block of eight rows: doubled values + 12, which makes them unsigned.
struct WeightBlock {
  __m256i words[8];

  CACHALOT_INLINE_MEMBER WeightBlock(const uint8_t* const* codes, int64_t offset) {
    const __m256i table = _mm256_add_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubled))),
        _mm256_set1_epi8(12));
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    __m256i even[4], odd[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto at = [&](int row) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[row] + offset));
      };
      const __m256i packed = _mm256_inserti128_si256(_mm256_castsi128_si256(at(i)), at(4 + i), 1);
      even[i] = _mm256_shuffle_epi8(table, _mm256_and_si256(packed, nibble));
      odd[i] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble));
    }
    transpose_words(even, words, 2);
    transpose_words(odd, words + 1, 2);
  }
};

CACHALOT_INLINE __m256i broadcast_word(const void* from) {
  int32_t word;
  __builtin_memcpy(&word, from, 4);
  return _mm256_set1_epi32(word);
}

// The block's sum of every row. A pair of products is at most 2 * 24 * 127: four pairs fit 16 bits.
CACHALOT_INLINE F32 dot_block(const WeightBlock& w, const Int8Block& x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i total = broadcast_word(&x.offset);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = half * 4; i < half * 4 + 4; ++i) {
      const __m256i products = _mm256_maddubs_epi16(w.words[i], broadcast_word(x.q + i * 4));
      pairs = i % 4 == 0 ? products : _mm256_add_epi16(pairs, products);
    }
    total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
  }
  return _mm256_cvtepi32_ps(total);
}

// The scales of four blocks, or of fewer, of eight rows: a byte each in a row's word.
CACHALOT_INLINE U32 load_scale_codes(const uint8_t* const* scales, int64_t block, int64_t count) {
  U32 codes{};
#pragma GCC unroll 8
  for (int r = 0; r < kInt8Rows; ++r) {
    uint32_t word = 0;
    __builtin_memcpy(&word, scales[r] + block, static_cast<size_t>(count));
    codes[r] = word;
  }
  return codes;
}
CACHALOT_INLINE F32 scales_of(U32 codes) {
  const U32 bits = codes << 23;
  return (F32)(bits > 0x00400000u ? bits : U32{} + 0x00400000u);
}

// Adds the products of `count` blocks, at most four, to the sums.
template <int kTokens>
CACHALOT_INLINE void add_blocks(const uint8_t* const* codes, U32 scale_codes,
                                const Int8Block* const* x, int64_t block, int64_t count,
                                Fetcher& next, F32 (&sums)[kTokens]) {
  for (int64_t b = block; b < block + count; ++b, scale_codes >>= 8) {
    next.step(kInt8Rows * 16);
    const F32 scales = scales_of(scale_codes & 0xFF);
    const WeightBlock weights(codes, b * 16);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      sums[t] = fma(dot_block(weights, x[t][b]), scales * splat(x[t][b].half_scale), sums[t]);
    }
  }
}

// kInt8Rows rows, decoded once for every kTokens tokens.
template <int kTokens>
void multiply_int8_tile(const Product& p, int64_t first, int64_t token, Fetcher& fetcher) {
  const PackedWeight& w = p.weight;
  const int64_t blocks = w.columns / kBlock;
  const WeightRows<kInt8Rows> rows(p, first);
  const Int8Block* x[kTokens];
  F32 sums[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = static_cast<const Int8Block*>(p.x[token + t]);
    sums[t] = splat(0.0f);
  }
  Fetcher next = fetcher;
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    add_blocks<kTokens>(rows.codes, load_scale_codes(rows.scales, b, 4), x, b, 4, next, sums);
  }
  if (b < blocks) {
    add_blocks<kTokens>(rows.codes, load_scale_codes(rows.scales, b, blocks - b), x, b, blocks - b,
                        next, sums);
  }
  fetcher = next;
  for (int t = 0; t < kTokens; ++t) {
    float values[kInt8Rows];
    store(values, sums[t]);
    for (int r = 0; r < kInt8Rows && first + r < p.last_row; ++r) {
      put(p, token + t, first + r, values[r]);
    }
  }
}

#else

constexpr int column_at(int i) { return i; }

struct Weights {
  int8_t v[kBlock];
};

CACHALOT_INLINE Weights load_doubled(const uint8_t* codes) {
  Weights out;
  for (int i = 0; i < kBlock / 2; ++i) {
    out.v[2 * i] = kDoubled[codes[i] & 0xF];
    out.v[2 * i + 1] = kDoubled[codes[i] >> 4];
  }
  return out;
}

CACHALOT_INLINE float add_block(float sum, const Weights& w, const Int8Block& x, float scale) {
  int32_t dot = 0;
  for (int i = 0; i < kBlock; ++i) dot += w.v[i] * x.q[i];
  return static_cast<float>(dot) * (scale * x.half_scale) + sum;
}

constexpr int kInt8Rows = 4, kInt8Tokens = 2;

// kInt8Rows rows, decoded once for every kTokens tokens.
template <int kTokens>
void multiply_int8_tile(const Product& p, int64_t first, int64_t token, Fetcher&) {
  const PackedWeight& w = p.weight;
  const int64_t blocks = w.columns / kBlock;
  const WeightRows<kInt8Rows> rows(p, first);
  const Int8Block* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const Int8Block*>(p.x[token + t]);
  float sums[kInt8Rows][kTokens] = {};
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 4
    for (int r = 0; r < kInt8Rows; ++r) {
      if (b % 4 == 0) __builtin_prefetch(rows.codes[r] + b * 16 + kInt8Rows * w.row_bytes());
      const Weights block = load_doubled(rows.codes[r] + b * 16);
      const float scale = e8m0_value(rows.scales[r][b]);
#pragma GCC unroll 2
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = add_block(sums[r][t], block, x[t][b], scale);
      }
    }
  }
  for (int r = 0; r < kInt8Rows && first + r < p.last_row; ++r) {
    for (int t = 0; t < kTokens; ++t) put(p, token + t, first + r, sums[r][t]);
  }
}

#endif

void multiply_int8(const Product& p, void*) {
  Fetcher(p.next_scales).step(p.next_scales.bytes);
  Fetcher next(p.next_codes);
  for (int64_t row = p.first_row; row < p.last_row; row += kInt8Rows) {
    for (int64_t t = 0; t < p.tokens; t += kInt8Tokens) {
      const int64_t now = p.tokens - t < kInt8Tokens ? p.tokens - t : kInt8Tokens;
      with_tokens<kInt8Tokens>(
          now, [&]<int kTokens>() { multiply_int8_tile<kTokens>(p, row, t, next); });
    }
  }
}

void quantize_int8(const bf16* x, int64_t first, int64_t count, Format, void* row) {
  quantize_blocks(x, count, column_at, static_cast<Int8Block*>(row) + first / kBlock);
}

constexpr MatmulKernels kInt8Table = int8_table(quantize_int8, multiply_int8, 0);

}  // namespace
}  // namespace cachalot::cpu
