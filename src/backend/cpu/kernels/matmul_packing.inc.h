// Activations as the right tiles of AMX: 16 tokens side by side, two columns to a 32-bit element,
// 16 elements (32 columns) to a tile of one row per element.
//
// Tokens come in tiles of 16; the last one is as wide as the next power of two that holds its
// tokens, so that one token's tile is its own row of BF16 values. Columns are padded with zeros to
// a multiple of 64, as weights are. For an FP4 weight column 4 i + j of a tile stands at 8 j + i,
// the order in which its nibbles are decoded.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"
#include "backend/cpu/kernels/transpose.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kTokensOfTile = kPackTokens;
static_assert(kTokensOfTile == 16);

// Blocks of 32 columns that lie side by side for a single token (matmul_tile_one.inc.h).
constexpr int64_t kSpan = 16;

CACHALOT_INLINE int64_t padded_columns(int64_t columns) { return (columns + 63) / 64 * 64; }

CACHALOT_INLINE int64_t width_for(int64_t tokens) {
  int64_t width = 1;
  while (width < tokens && width < kTokensOfTile) width *= 2;
  return width;
}

// A single token a second time, behind its tile, as FP32: spans of kSpan blocks, each as column 0
// of all its blocks, then column 1, in the tiles' order; block 4 i + l in lane 4 l + i. In a last
// span of half as many blocks or fewer they stand twice, 8 blocks apart; lanes without a block hold
// anything. Before the spans the least and the largest biased exponents of every block, zeros and
// denormals left out: those are zeros here. For an FP8 weight the values are multiplied by 2^8.
struct SpanToken {
  const uint8_t* least;  // [blocks]
  const uint8_t* most;   // [blocks]
  const float* values;
};

CACHALOT_INLINE int64_t span_columns(int64_t columns) {
  return (columns + kSpan * kBlock - 1) / (kSpan * kBlock) * (kSpan * kBlock);
}
// Bytes of the exponents of a row's blocks, each of the two.
CACHALOT_INLINE int64_t range_bytes(int64_t columns) { return (columns / kBlock + 63) / 64 * 64; }
// Fewer columns have none: they would need more room than a tile of kTokensOfTile, which is what
// moe_experts has for each group of tokens.
CACHALOT_INLINE bool has_spans(int64_t columns) { return columns >= kSpan * kBlock / 2; }
CACHALOT_INLINE int64_t span_bytes(int64_t columns) {
  return has_spans(columns) ? 2 * range_bytes(columns) + span_columns(columns) * 4 : 0;
}

// Tokens first .. first + count - 1 of a packed operand of at least as many; first is a multiple of
// kTokensOfTile, and the count too unless they are the last.
class PackedTokens {
 public:
  struct Tile {
    const uint8_t* data;
    int64_t width;
  };

  PackedTokens(const void* packed, int64_t columns, int64_t first, int64_t count)
      : columns_(columns),
        tile_bytes_(padded_columns(columns) * 2 * kTokensOfTile),
        data_(static_cast<const uint8_t*>(packed) + first / kTokensOfTile * tile_bytes_),
        count_(count) {}

  int64_t tiles() const { return (count_ + kTokensOfTile - 1) / kTokensOfTile; }
  int64_t tokens_of(int64_t tile) const {
    const int64_t left = count_ - tile * kTokensOfTile;
    return left < kTokensOfTile ? left : kTokensOfTile;
  }
  // Width 0 past the last.
  CACHALOT_INLINE_MEMBER Tile tile(int64_t index) const {
    if (index >= tiles()) return {data_, 0};
    return {data_ + index * tile_bytes_, width_for(tokens_of(index))};
  }
  // Of a single token.
  SpanToken spans() const {
    const uint8_t* least = data_ + padded_columns(columns_) * 2;
    const uint8_t* most = least + range_bytes(columns_);
    return {least, most, reinterpret_cast<const float*>(most + range_bytes(columns_))};
  }

 private:
  int64_t columns_;
  int64_t tile_bytes_;
  const uint8_t* data_;
  int64_t count_;
};

int64_t packed_bytes(int64_t tokens, int64_t columns) {
  const int64_t whole = tokens / kTokensOfTile, rest = tokens % kTokensOfTile;
  const int64_t width = whole * kTokensOfTile + (rest ? width_for(rest) : 0);
  return width * padded_columns(columns) * 2 + (rest == 1 ? span_bytes(columns) : 0);
}

// A block of a row as the elements of a tile, in an FP4 weight's order if asked.
CACHALOT_INLINE __m512i elements_of(const uint16_t* row, int64_t block, bool fp4) {
  const __m512i columns = _mm512_loadu_si512(row + block * kBlock);
  if (!fp4) return columns;
  const __m512i order = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2,
                                         29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
  return _mm512_permutexvar_epi16(order, columns);
}

// A block of a single token where its spans want it.
CACHALOT_INLINE void lay_in_spans(__m512i elements, int64_t block, int64_t columns, Format format,
                                  uint8_t* spans) {
  const __m512i exponent_bits = _mm512_set1_epi32(0x7F800000);
  const __m512 factor = _mm512_set1_ps(format == Format::fp8 ? 256.0f : 1.0f);
  const __m512i lines =
      _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
  const int64_t in_span = block % kSpan, span = block / kSpan;
  const bool twice = columns / kBlock - span * kSpan <= kSpan / 2;
  float* lane = reinterpret_cast<float*>(spans + 2 * range_bytes(columns)) + span * kSpan * kBlock +
                in_span % 4 * 4 + in_span / 4;
  __m512i least = exponent_bits, most = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, lane += kSpan * kSpan) {
    const __m256i words =
        half ? _mm512_extracti64x4_epi64(elements, 1) : _mm512_castsi512_si256(elements);
    const __m512i value = _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
    const __m512i exponent = _mm512_and_si512(value, exponent_bits);
    const __mmask16 normal = _mm512_test_epi32_mask(value, exponent_bits);
    least = _mm512_mask_min_epi32(least, normal, least, exponent);
    most = _mm512_max_epi32(most, exponent);
    const __m512 scaled = _mm512_maskz_mul_ps(normal, _mm512_castsi512_ps(value), factor);
    _mm512_i32scatter_ps(lane, lines, scaled, 4);
    if (twice) _mm512_i32scatter_ps(lane + 2, lines, scaled, 4);
  }
  spans[block] = static_cast<uint8_t>(_mm512_reduce_min_epi32(least) >> 23);
  spans[range_bytes(columns) + block] = static_cast<uint8_t>(_mm512_reduce_max_epi32(most) >> 23);
}

// Columns first_column .. first_column + column_count - 1 of token tile `tile` of `tokens` prepared
// rows.
void pack(const void* const* rows, int64_t tokens, int64_t columns, Format format, int64_t tile,
          int64_t first_column, int64_t column_count, void* packed) {
  const int64_t first = tile * kTokensOfTile;
  const int64_t count = tokens - first < kTokensOfTile ? tokens - first : kTokensOfTile;
  const int64_t width = width_for(count), blocks = columns / kBlock;
  const int64_t last_block = (first_column + column_count) / kBlock;
  const bool fp4 = format == Format::fp4;
  auto* out = static_cast<uint32_t*>(packed) + first * (padded_columns(columns) / 2);
  const auto row = [&](int64_t t) { return static_cast<const uint16_t*>(rows[first + t]); };
  const bool spans = count == 1 && has_spans(columns) && format != Format::bf16;
  const auto used = static_cast<__mmask16>((1u << width) - 1);
  for (int64_t block = first_column / kBlock; block < last_block; ++block) {
    uint32_t* at = out + block * 16 * width;
    if (count == 1) {
      const __m512i elements = elements_of(row(0), block, fp4);
      _mm512_storeu_si512(at, elements);
      if (spans) {
        lay_in_spans(elements, block, columns, format,
                     reinterpret_cast<uint8_t*>(out + padded_columns(columns) / 2));
      }
      continue;
    }
    F32 lines[16];
#pragma GCC unroll 16
    for (int64_t t = 0; t < kTokensOfTile; ++t) {
      lines[t] = t < count ? (F32)elements_of(row(t), block, fp4) : F32{};
    }
    transpose(lines);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_mask_storeu_ps(at + i * width, used, lines[i]);
  }
  if (last_block == blocks && blocks % 2 == 1) {
    __builtin_memset(out + blocks * 16 * width, 0, static_cast<size_t>(width) * 64);
  }
}

}  // namespace
}  // namespace cachalot::cpu
