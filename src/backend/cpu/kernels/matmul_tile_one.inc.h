// One token without tile registers, bit for bit what those compute (matmul_tiles.inc.h).
//
// A tile instruction takes as long for one token as for sixteen, and its weights go through memory
// first. Here they stay in registers, and rows are read one after the other as they lie. To a sum
// the instruction adds even + odd, where even starts at zero and takes the products of the tile's
// columns 0, 2, .. 30 by fma, ascending, and odd those of 1, 3, .. 31. Both stay inside a block of
// 32 columns: so lanes are 16 blocks of a row, whose codes are transposed as they are loaded, and
// the blocks of 16 rows are added up in order afterwards.
//
// A block's scale is multiplied in after its sum, not before: a power of two, it commutes with
// every rounding as long as nothing leaves the normal numbers. Where that is not certain
// (one_folds), the tiles compute the product.
#pragma once

#include "backend/cpu/kernels/matmul_packing.inc.h"
#include "backend/cpu/kernels/matmul_tile_decode.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kJoinedRows = 16;
constexpr int64_t kMostSpanBlocks = 512;  // of a row whose sums have room in the scratch

// Sixteen bytes of each of a span's blocks, transposed: dword[d] holds the blocks' dwords d, block
// 4 i + l in lane 4 l + i.
struct SpanBytes {
  __m512i dword[4];
};

// Where the codes of blocks 0 to 7 and 8 to 15 of a span are, and how many there are: the second
// half of a span may be another row's.
struct SpanHalves {
  const uint8_t* at[2];
  int64_t blocks[2];
};

// Lane l of line i: block 4 i + l.
CACHALOT_INLINE SpanBytes transposed(__m512i line0, __m512i line1, __m512i line2, __m512i line3) {
  const __m512i low01 = _mm512_unpacklo_epi32(line0, line1);
  const __m512i high01 = _mm512_unpackhi_epi32(line0, line1);
  const __m512i low23 = _mm512_unpacklo_epi32(line2, line3);
  const __m512i high23 = _mm512_unpackhi_epi32(line2, line3);
  return {{_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
           _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)}};
}

// Sixty-four bytes at `at` + offset, of which `bytes` - offset exist.
template <bool kWhole>
CACHALOT_INLINE __m512i load_line(const uint8_t* at, int offset, int64_t bytes) {
  if constexpr (kWhole) return _mm512_loadu_si512(at + offset);
  const int64_t left = bytes - offset;
  if (left <= 0) return _mm512_setzero_si512();
  const __mmask64 there = left < 64 ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
  return _mm512_maskz_loadu_epi8(there, at + offset);
}

CACHALOT_INLINE __mmask16 blocks_there(int64_t blocks) {
  return static_cast<__mmask16>(blocks < kSpan ? (1u << blocks) - 1 : 0xFFFF);
}

// The next two columns of a tile, of all blocks of a span.
struct SpanPair {
  F32 even, odd;
};

// What a format does with its spans: kSteps times sixteen bytes of every block, kPairs pairs each.

// --------------------------------------------------------------------------------------------- FP8

// Values come as 2^-8 of what they are (as a half-precision number has a code's bits), activations
// as 2^8.
struct Fp8Spans {
  static constexpr int kSteps = 2, kPairs = 8;
  static constexpr bool kFetchesBelow = true;
  static constexpr int64_t kBytes = 32;  // of a block
  __m512i bytes[2], mask;

  Fp8Spans() {
    mask = kept(_mm512_set1_epi16(static_cast<int16_t>(0xBFFF)));
    // Bytes 2 i and 2 i + 1 of every lane, as the upper bytes of 32 words.
    for (int i = 0; i < 2; ++i) {
      alignas(64) uint8_t from[64];
      for (int w = 0; w < 32; ++w) {
        from[2 * w] = from[2 * w + 1] = static_cast<uint8_t>(w % 16 * 4 + 2 * i + w / 16);
      }
      bytes[i] = kept(_mm512_load_si512(from));
    }
  }

  // Sixteen bytes of the blocks, those of step 0 or 1.
  template <bool kWhole>
  CACHALOT_INLINE_MEMBER static SpanBytes load(const SpanHalves& halves, int step) {
    __m512i lines[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint8_t* at = halves.at[i / 2];
      const int64_t bytes = halves.blocks[i / 2] * kBytes;
      const __m512i first = load_line<kWhole>(at, i % 2 * 128, bytes);
      const __m512i second = load_line<kWhole>(at, i % 2 * 128 + 64, bytes);
      lines[i] = step == 0 ? _mm512_shuffle_i32x4(first, second, 0x88)
                           : _mm512_shuffle_i32x4(first, second, 0xDD);
    }
    return transposed(lines[0], lines[1], lines[2], lines[3]);
  }

  CACHALOT_INLINE_MEMBER SpanPair pair(const SpanBytes& span, int i) const {
    const __m512i codes =
        _mm512_maskz_permutexvar_epi8(0xAAAAAAAAAAAAAAAAull, bytes[i % 2], span.dword[i / 2]);
    const __m512i halves = _mm512_and_si512(_mm512_srai_epi16(codes, 1), mask);
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
  }

  CACHALOT_INLINE_MEMBER static F32 scales(const PackedWeight& w, int64_t row, int64_t block,
                                           int64_t count) {
    const float* at = w.tile_scales + row / 32 * (w.columns / kBlock) + block;
    return _mm512_maskz_loadu_ps(blocks_there(count), at);
  }
};

// --------------------------------------------------------------------------------------------- FP4

struct Fp4Spans {
  static constexpr int kSteps = 1, kPairs = 16;
  static constexpr bool kFetchesBelow = false;
  static constexpr int64_t kBytes = 16;
  __m512 values;

  Fp4Spans() {
    values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
                            -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    __asm__("" : "+v"(values));
  }

  template <bool kWhole>
  CACHALOT_INLINE_MEMBER static SpanBytes load(const SpanHalves& halves, int) {
    __m512i lines[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      lines[i] = load_line<kWhole>(halves.at[i / 2], i % 2 * 64, halves.blocks[i / 2] * kBytes);
    }
    return transposed(lines[0], lines[1], lines[2], lines[3]);
  }

  CACHALOT_INLINE_MEMBER SpanPair pair(const SpanBytes& span, int i) const {
    // vpermps looks at the lowest four bits of a lane only.
    const __m512i codes = span.dword[i % 4];
    const auto shift = static_cast<unsigned>(i / 4 * 4);
    return {_mm512_permutexvar_ps(_mm512_srli_epi32(codes, shift), values),
            _mm512_permutexvar_ps(_mm512_srli_epi32(codes, shift + 16), values)};
  }

  CACHALOT_INLINE_MEMBER static F32 scales(const PackedWeight& w, int64_t row, int64_t block,
                                           int64_t count) {
    const uint8_t* at = w.row_scales + row * (w.columns / kBlock) + block;
    return (F32)_mm512_slli_epi32(
        _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(blocks_there(count), at)), 23);
  }
};

template <class Rows>
struct SpansOf {};  // BF16 has none: its rows need no decoding
template <>
struct SpansOf<Fp8Rows> {
  using Type = Fp8Spans;
};
template <>
struct SpansOf<Fp4Rows> {
  using Type = Fp4Spans;
};

// ---------------------------------------------------------------------------------------- product

// Scaled sums of every block of kJoinedRows rows. A row is a cache line more than a power of two
// long: else all would compete for the same cache sets.
struct BlockSums {
  alignas(64) float blocks[kJoinedRows][kMostSpanBlocks + kSpan];
};

// Sums of the blocks of kSpans spans of the same activations.
template <bool kWhole, class Spans, int kSpans>
CACHALOT_INLINE void dot_spans(const Spans& spans, const SpanHalves (&halves)[kSpans],
                               const float* x, F32 (&sums)[kSpans]) {
  F32 even[kSpans] = {}, odd[kSpans] = {};
#pragma GCC unroll 2
  for (int step = 0; step < Spans::kSteps; ++step) {
    SpanBytes bytes[kSpans];
#pragma GCC unroll 2
    for (int s = 0; s < kSpans; ++s) bytes[s] = Spans::template load<kWhole>(halves[s], step);
#pragma GCC unroll 16
    for (int i = 0; i < Spans::kPairs; ++i, x += 2 * kSpan) {
#pragma GCC unroll 2
      for (int s = 0; s < kSpans; ++s) {
        const SpanPair pair = spans.pair(bytes[s], i);
        even[s] = fma(pair.even, load(x), even[s]);
        odd[s] = fma(pair.odd, load(x + kSpan), odd[s]);
      }
    }
  }
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#pragma GCC unroll 2
  for (int s = 0; s < kSpans; ++s) sums[s] = _mm512_permutexvar_ps(order, even[s] + odd[s]);
}

// Two rows, of which the first is scratch row `place`. A function of its own, so that nothing else
// wants its registers.
template <class Spans>
__attribute__((noinline)) void multiply_pair(const PackedWeight& w, int64_t row, int64_t place,
                                             const float* x, Fetcher& fetcher, BlockSums& scratch) {
  constexpr int64_t kSpanBytes = kSpan * Spans::kBytes;
  const Spans spans;
  const int64_t stride = w.row_bytes(), blocks = w.columns / kBlock;
  const uint8_t* codes = w.data + row * stride;
  Fetcher next = fetcher;
  const auto fetch = [&] {
    if constexpr (!Spans::kFetchesBelow) return next.step(2 * kSpanBytes);
#pragma GCC unroll 2
    for (int r = 2; r < 4; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kSpanBytes; i += 64) __builtin_prefetch(codes + r * stride + i);
    }
  };
  F32 sums[2];
  const auto keep_both = [&](int64_t block, int64_t count) {
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      store(&scratch.blocks[place + r][block], sums[r] * Spans::scales(w, row + r, block, count));
    }
  };
  int64_t block = 0;
  for (; block + kSpan <= blocks; block += kSpan, codes += kSpanBytes, x += kSpan * kBlock) {
    fetch();
    const uint8_t* second = codes + kSpanBytes / 2;
    const SpanHalves halves[2] = {{{codes, second}, {8, 8}},
                                  {{codes + stride, second + stride}, {8, 8}}};
    dot_spans<true>(spans, halves, x, sums);
    keep_both(block, kSpan);
  }
  const int64_t left = blocks - block;
  if (left == 0) {
    fetcher = next;
    return;
  }
  fetch();
  if (left <= kSpan / 2) {  // both rows in one span
    const SpanHalves halves[1] = {{{codes, codes + stride}, {left, left}}};
    F32 both[1];
    dot_spans<false>(spans, halves, x, both);
    const F32 scaled = both[0] * _mm512_shuffle_f32x4(Spans::scales(w, row, block, left),
                                                      Spans::scales(w, row + 1, block, left), 0x44);
    _mm256_storeu_ps(&scratch.blocks[place][block], _mm512_castps512_ps256(scaled));
    _mm256_storeu_ps(&scratch.blocks[place + 1][block], _mm512_extractf32x8_ps(scaled, 1));
  } else {
    const uint8_t* second = codes + kSpanBytes / 2;
    const int64_t more = left - kSpan / 2;
    const SpanHalves halves[2] = {{{codes, second}, {8, more}},
                                  {{codes + stride, second + stride}, {8, more}}};
    dot_spans<false>(spans, halves, x, sums);
    keep_both(block, left);
  }
  fetcher = next;
}

// Adds the blocks of kJoinedRows rows, ascending.
CACHALOT_INLINE F32 joined(const float (&rows)[kJoinedRows][kMostSpanBlocks + kSpan],
                           int64_t blocks) {
  F32 sum = splat(0.0f);
  for (int64_t block = 0; block < blocks; block += kSpan) {
    F32 lines[kJoinedRows];
#pragma GCC unroll 16
    for (int r = 0; r < kJoinedRows; ++r) lines[r] = load(&rows[r][block]);
    transpose(lines);
    const int64_t count = blocks - block < kSpan ? blocks - block : kSpan;
#pragma GCC unroll 16
    for (int b = 0; b < kSpan; ++b) {
      if (b < count) sum += lines[b];
    }
  }
  return sum;
}

// Whether no product or sum of the token leaves the normal numbers, under the scales of
// Rows::scales_fold() or without: activations of 2^-46 to 2^48 have their lowest bit at 2^-53,
// codes theirs at 2^-9.
template <class Rows>
bool one_folds(const Product& p, const SpanToken& x) {
  const int64_t blocks = p.weight.columns / kBlock;
  for (int64_t b = 0; b < blocks; b += 64) {
    const __mmask64 there = blocks - b < 64 ? (uint64_t{1} << (blocks - b)) - 1 : ~uint64_t{0};
    const __m512i least = _mm512_maskz_loadu_epi8(there, x.least + b);
    const __m512i most = _mm512_maskz_loadu_epi8(there, x.most + b);
    if (_mm512_mask_cmplt_epu8_mask(there, least, _mm512_set1_epi8(127 - 46)) ||
        _mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(static_cast<char>(127 + 47)))) {
      return false;
    }
  }
  for (int64_t r = p.first_row; r < p.last_row; r += kGroupRows) {
    if (!Rows(p.weight, r, p.last_row).scales_fold()) return false;
  }
  return true;
}

// Whether it computed the product, for token `token`.
template <class Rows>
bool multiply_one(const Product& p, const PackedTokens& packed, int64_t token, BlockSums& scratch) {
  using Spans = typename SpansOf<Rows>::Type;
  const int64_t blocks = p.weight.columns / kBlock;
  if (!has_spans(p.weight.columns) || blocks > kMostSpanBlocks) return false;
  if ((p.last_row - p.first_row) % kJoinedRows != 0) return false;
  const SpanToken x = packed.spans();
  if (!one_folds<Rows>(p, x)) return false;
  Fetcher(p.next_scales).step(p.next_scales.bytes);
  Fetcher next(p.next_codes);
  for (int64_t first = p.first_row; first < p.last_row; first += kJoinedRows) {
    for (int64_t r = 0; r < kJoinedRows; r += 2) {
      multiply_pair<Spans>(p.weight, first + r, r, x.values, next, scratch);
    }
    const F32 sums = joined(scratch.blocks, blocks);
    for (int r = 0; r < kJoinedRows; ++r) put(p, token, first + r, sums[r]);
  }
  return true;
}

}  // namespace
}  // namespace cachalot::cpu
