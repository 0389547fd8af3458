// FP4 rows for the BF16 dot product: 256 columns of a row, eight blocks of 32, at a time.
//
// Two registers of 64 bytes, four blocks each, are interleaved by words of 32 bits. Every 16 bits
// of them hold four codes, so they themselves, and shifted by 4, 8 and 12 bits, index a permutation
// of the sixteen values: eight registers of 32 BF16 values, and in each the same lanes belong to
// the same block. One after the other they are added to the output's sums.
//
// Either the weights take the scales, or the sums do, for few tokens: these are kept divided by
// their lanes' present scales, five operations for 256 columns, and all bits are the same while
// nothing over- or underflows (kMovingRange). Where a scale cannot be added to exponents, a span's
// products are summed unscaled from zero and join by fma(partial, scale, sum).
#pragma once

#include "backend/cpu/kernels/matmul_bf16_decode.inc.h"
#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int kSpanBlocks = 8;  // blocks that are taken together
constexpr int kSpanColumns = kSpanBlocks * kBlock;
static_assert(kPreparedColumns % kSpanColumns == 0);
constexpr int kSpanVectors = 8;  // of an input

// Where the scales go: into the weights, or, moving along, into the sums; or they are multiplied
// with partial sums.
enum class Fp4Scaling { weights, moving, partial };

// Sums may be divided by one scale and multiplied by another of 2^-24 to 2^24 where inputs are
// quantized and in_moving_range(): like the products, their bits lie between 2^-80 and 2^118 for a
// million columns.
constexpr int kMovingRange = 24;

struct Fp4Row : Fp4Codes {
  static constexpr bool kScaled = true, kSharesScales = false;

  using Fp4Codes::Fp4Codes;
  // Whether all scales can be added to exponents, or moved.
  static bool folds(const PackedWeight& w, int64_t first, int64_t last) {
    return within(w, first, last, kScaleRange);
  }
  static bool moves(const PackedWeight& w, int64_t first, int64_t last) {
    return within(w, first, last, kMovingRange);
  }

 private:
  static bool within(const PackedWeight& w, int64_t first, int64_t last, int exponent) {
    const int64_t blocks = w.columns / kBlock;
    return scales_within(w.row_scales + first * blocks, (last - first) * blocks, exponent);
  }
};

// Where the lanes' blocks lie: the first four in even lanes, four lanes after the other two.
constexpr int block_of(int lane) { return lane / 4 + lane % 2 * 4; }

// A span of a row, or what is left of one at its end.
struct Fp4Span {
  int64_t blocks;
  __mmask16 lanes;  // whose blocks are there

  explicit Fp4Span(int64_t count) : blocks(count), lanes(0) {
    for (int i = 0; i < kLanes; ++i) {
      if (block_of(i) < count) lanes = static_cast<__mmask16>(lanes | 1u << i);
    }
  }
  Fp4Span() : blocks(kSpanBlocks), lanes(0xFFFF) {}

  // Codes of absent blocks are zeros.
  template <bool kWhole>
  CACHALOT_INLINE_MEMBER void interleave(const uint8_t* codes, __m512i out[2]) const {
    __m512i a, b;
    if constexpr (kWhole) {
      a = _mm512_loadu_si512(codes);
      b = _mm512_loadu_si512(codes + 64);
    } else {
      const uint64_t all = ~uint64_t{0};
      a = _mm512_maskz_loadu_epi8(blocks < 4 ? ~(all << (16 * blocks)) : all, codes);
      b = _mm512_maskz_loadu_epi8(blocks > 4 ? ~(all << (16 * (blocks - 4))) : 0, codes + 64);
    }
    out[0] = _mm512_unpacklo_epi32(a, b);
    out[1] = _mm512_unpackhi_epi32(a, b);
  }
  // Scale codes, 127 for absent blocks.
  template <bool kWhole>
  CACHALOT_INLINE_MEMBER uint64_t scales(const uint8_t* p) const {
    uint64_t eight = 0x7F7F7F7F7F7F7F7F;
    if constexpr (kWhole) {
      __builtin_memcpy(&eight, p, 8);
    } else {
      for (int64_t b = 0; b < blocks; ++b) eight ^= uint64_t{p[b] ^ 0x7Fu} << (8 * b);
    }
    return eight;
  }
  template <bool kWhole>
  CACHALOT_INLINE_MEMBER __m512bh input(const uint16_t* p) const {
    if constexpr (kWhole) return (__m512bh)_mm512_loadu_si512(p);
    return (__m512bh)_mm512_maskz_loadu_epi32(lanes, p);
  }
};

struct Fp4Constants {
  __m512i values;  // of the codes; times 2^kScaleRange if weights take the scales
  // Rotations that bring a block's scale code to its lanes' exponents.
  __m512i to_exponent =
      kept(_mm512_setr_epi32(23, 23, 23, 23, 15, 15, 15, 15, 7, 7, 7, 7, 31, 31, 31, 31));
  __m512i exponent = kept(_mm512_set1_epi32(0x7F800000));
  __m512i one = kept(_mm512_set1_epi8(127));  // 2^0
  __m512i to_words;                           // bytes: a scale code to the upper ones of its words
  __m512i largest = kept(_mm512_set1_epi16((127 + kScaleRange) << 7));

  explicit Fp4Constants(bool scaled) {
    const __m512i unscaled = _mm512_broadcast_i64x4(
        _mm256_setr_epi16(0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0, -0x4100,
                          -0x4080, -0x4040, -0x4000, -0x3FC0, -0x3F80, -0x3F40));
    values =
        kept(scaled ? shifted(unscaled, _mm512_set1_epi16(kScaleRange << 7), _mm512_set1_epi16(-1))
                    : unscaled);
    alignas(64) uint8_t bytes[64];
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(i % 2 ? block_of(i / 4) : 0x80);
    to_words = kept(_mm512_load_si512(bytes));
  }

  // Eight scales as FP32 values in the lanes of their blocks; none may be 2^-127.
  CACHALOT_INLINE_MEMBER F32 scales(__m512i codes) const {
    return (F32)_mm512_and_si512(_mm512_rolv_epi32(codes, to_exponent), exponent);
  }
  CACHALOT_INLINE_MEMBER F32 scales(uint64_t codes) const { return scales(all(codes)); }
  // One divided by the other.
  CACHALOT_INLINE_MEMBER F32 quotients(uint64_t before, uint64_t codes) const {
    return scales(_mm512_add_epi8(_mm512_sub_epi8(all(before), all(codes)), one));
  }
  CACHALOT_INLINE_MEMBER F32 any_scales(uint64_t codes) const {
    F32 out;
    for (int i = 0; i < kLanes; ++i) {
      out[i] = e8m0_value(static_cast<uint8_t>(codes >> (8 * block_of(i))));
    }
    return out;
  }
  // What scales lack to 2^kScaleRange, to be taken from exponents.
  CACHALOT_INLINE_MEMBER __m512i lacking(uint64_t codes) const {
    const __m512i upper = _mm512_shuffle_epi8(all(codes), to_words);
    return _mm512_sub_epi16(largest, _mm512_srli_epi16(upper, 1));
  }
  CACHALOT_INLINE_MEMBER __m512i decode(__m512i words) const {
    return _mm512_permutexvar_epi16(words, values);
  }
  // Saturated: zeros, of either sign positive, stay zeros.
  CACHALOT_INLINE_MEMBER __m512i decode(__m512i words, __m512i lacks) const {
    return _mm512_subs_epu16(decode(words), lacks);
  }

 private:
  static __m512i all(uint64_t codes) { return _mm512_set1_epi64(static_cast<int64_t>(codes)); }
};

// A block of an input, its columns from `first` on, to its place in the row.
CACHALOT_INLINE void lay_in_span(const uint16_t* values, int64_t first, uint16_t* row) {
  const int64_t block = first % kSpanColumns / kBlock;
  uint16_t* lane = row + first / kSpanColumns * kSpanColumns + block % 4 * 8 + block / 4 * 2;
  for (int j = 0; j < 4; ++j) {
    for (int d = 0; d < 4; ++d) {
      uint16_t* at = lane + (d / 2 * 4 + j) * kBlock + d % 2 * 4;
      at[0] = values[8 * d + j];
      at[1] = values[8 * d + 4 + j];
    }
  }
}

// ------------------------------------------------------------------------------------ few tokens

// Rows that are taken together, so that no dot product waits for the one before it.
constexpr int kRowsTogether = 4;

// Whether the quantized input of whole spans has nothing above 2^50; but zeros it has nothing below
// 2^-31.
CACHALOT_INLINE bool in_moving_range(const uint16_t* x, int64_t columns) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t k = 0; k < columns; k += kBlock) {
    const __m512i v = _mm512_loadu_si512(x + k);
    most = _mm512_max_epu16(most, _mm512_add_epi16(v, v));  // without the sign
  }
  return !_mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(static_cast<int16_t>((127 + 50) << 8)));
}

// Sums of kRows rows from `first` on and kTokens tokens, [kTokens][kRows], lane by lane. Scales
// move in whole spans only.
template <int kRows, int kTokens, Fp4Scaling kScaling>
__attribute__((noinline)) void dot_fp4(const Fp4Row& first, const uint16_t* const* tokens,
                                       int64_t blocks, Fetcher& fetcher, F32* lanes) {
  const Fp4Constants constants(kScaling == Fp4Scaling::weights);
  const uint16_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tokens[t];
  F32 sums[kRows][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
  }
  // Rows by two pointers and the distance of rows.
  Fp4Row row = first, middle = below(first, kRows / 2);
  Fetcher next = fetcher;
  int64_t back = 0;  // to the scales of the span before, where there is one
  const auto at = [&](int r) __attribute__((always_inline)) {
    return r < kRows / 2 ? below(row, r) : below(middle, r - kRows / 2);
  };
  const auto step = [&]<bool kWhole>(const Fp4Span& span) __attribute__((always_inline)) {
    next.step(span.blocks * kRows * Fp4Row::kBytes);
#pragma GCC unroll 2
    for (int from = 0; from < kRows; from += kRowsTogether) {
      __m512i words[kRowsTogether][2], lacking[kRowsTogether];
      F32 partial[kRowsTogether][kTokens];
#pragma GCC unroll 4
      for (int r = 0; r < kRowsTogether; ++r) {
        const Fp4Row here = at(from + r);
        span.template interleave<kWhole>(here.codes, words[r]);
        const uint64_t scales = span.template scales<kWhole>(here.scales);
        F32 quotients;
        if (kScaling == Fp4Scaling::weights) lacking[r] = constants.lacking(scales);
        if (kScaling == Fp4Scaling::moving) {
          quotients = constants.quotients(span.template scales<true>(here.scales - back), scales);
        }
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          partial[r][t] = kScaling == Fp4Scaling::moving    ? sums[from + r][t] * quotients
                          : kScaling == Fp4Scaling::weights ? sums[from + r][t]
                                                            : splat(0.0f);
        }
      }
#pragma GCC unroll 8
      for (int v = 0; v < kSpanVectors; ++v) {
        __m512bh w[kRowsTogether];
#pragma GCC unroll 4
        for (int r = 0; r < kRowsTogether; ++r) {
          __m512i& codes = words[r][v / 4];
          w[r] = (__m512bh)(kScaling == Fp4Scaling::weights ? constants.decode(codes, lacking[r])
                                                            : constants.decode(codes));
          codes = _mm512_srli_epi16(codes, 4);
        }
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          const __m512bh input = span.template input<kWhole>(x[t] + v * kBlock);
#pragma GCC unroll 4
          for (int r = 0; r < kRowsTogether; ++r) {
            partial[r][t] = _mm512_dpbf16_ps(partial[r][t], w[r], input);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRowsTogether; ++r) {
        F32 scales;
        if (kScaling == Fp4Scaling::partial) {
          scales = constants.any_scales(span.template scales<kWhole>(at(from + r).scales));
        }
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          F32& sum = sums[from + r][t];
          sum = kScaling == Fp4Scaling::partial ? fma(partial[r][t], scales, sum) : partial[r][t];
        }
      }
    }
    row.advance(span.blocks);
    middle.advance(span.blocks);
    for (int t = 0; t < kTokens; ++t) x[t] += kSpanColumns;
    back = kSpanBlocks;
  };
  int64_t b = 0;
  for (; b + kSpanBlocks <= blocks; b += kSpanBlocks) step.template operator()<true>(Fp4Span());
  if (kScaling != Fp4Scaling::moving && b < blocks) {
    step.template operator()<false>(Fp4Span(blocks - b));
  }
  fetcher = next;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    F32 scales;
    if (kScaling == Fp4Scaling::moving) {
      scales = constants.scales(Fp4Span().scales<true>(at(r).scales - back));
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      lanes[t * kRows + r] = kScaling == Fp4Scaling::moving ? sums[r][t] * scales : sums[r][t];
    }
  }
}

// ----------------------------------------------------------------------------------- many tokens

// Rows first .. last - 1, whole spans whose scales fold into exponents, as BF16 values in the order
// of inputs. Fetches as many bytes as it decodes.
void decode_spans(const PackedWeight& w, int64_t first, int64_t last, Fetcher& fetcher,
                  uint16_t* panel) {
  const Fp4Constants constants(true);
  const Fp4Span span;
  Fetcher next = fetcher;
  for (int64_t r = first; r < last; ++r) {
    Fp4Row row(w, r);
    for (int64_t k = 0; k < w.columns; k += kSpanColumns, panel += kSpanColumns) {
      next.step(kSpanBlocks * Fp4Row::kBytes);
      const __m512i lacking = constants.lacking(span.scales<true>(row.scales));
      __m512i words[2];
      span.interleave<true>(row.codes, words);
#pragma GCC unroll 8
      for (int v = 0; v < kSpanVectors; ++v) {
        __m512i& codes = words[v / 4];
        _mm512_storeu_si512(panel + v * kBlock, constants.decode(codes, lacking));
        codes = _mm512_srli_epi16(codes, 4);
      }
      row.advance(kSpanBlocks);
    }
  }
  fetcher = next;
}

}  // namespace
}  // namespace cachalot::cpu
