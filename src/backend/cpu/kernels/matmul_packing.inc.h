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
// span of half as many blocks or fewer they stand twice, 8 blocks apart. And the range of the
// biased exponents, zeros and denormals left out: those are zeros here. For an FP8 weight the
// values are multiplied by 2^8.
struct SpanToken {
  const float* values;
  int32_t least, most;
};
struct alignas(64) SpanRange {
  int32_t least, most;
};

CACHALOT_INLINE int64_t span_columns(int64_t columns) {
  return (columns + kSpan * kBlock - 1) / (kSpan * kBlock) * (kSpan * kBlock);
}
// Fewer columns have none: they would need more room than a tile of kTokensOfTile, which is what
// moe_experts has for each group of tokens.
CACHALOT_INLINE bool has_spans(int64_t columns) { return columns >= kSpan * kBlock / 2; }
CACHALOT_INLINE int64_t span_bytes(int64_t columns) {
  return has_spans(columns) ? static_cast<int64_t>(sizeof(SpanRange)) + span_columns(columns) * 4
                            : 0;
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
    const auto* range = reinterpret_cast<const SpanRange*>(data_ + padded_columns(columns_) * 2);
    return {reinterpret_cast<const float*>(range + 1), range->least, range->most};
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

// Columns 64 g .. 64 g + 63 of a row, as the elements of two tiles, in an FP4 weight's order if
// asked.
struct Elements {
  __m512i tile[2];
};

CACHALOT_INLINE Elements elements_of(const uint16_t* row, int64_t group, int64_t columns,
                                     bool fp4) {
  const int64_t left = columns - group * 64;
  const __m512i low = _mm512_loadu_si512(row + group * 64);
  const __m512i high =
      left > 32 ? _mm512_loadu_si512(row + group * 64 + 32) : _mm512_setzero_si512();
  if (!fp4) return {{low, high}};
  const __m512i order = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2,
                                         29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
  return {{_mm512_permutexvar_epi16(order, low), _mm512_permutexvar_epi16(order, high)}};
}

// The spans of a single token.
void lay_spans(const uint16_t* row, int64_t columns, Format format, SpanRange* range) {
  auto* out = reinterpret_cast<float*>(range + 1);
  const __m512i exponent_bits = _mm512_set1_epi32(0x7F800000);
  const __m512 factor = _mm512_set1_ps(format == Format::fp8 ? 256.0f : 1.0f);
  __m512i least = exponent_bits, most = _mm512_setzero_si512();
  for (int64_t first = 0; first < columns; first += kSpan * kBlock, out += kSpan * kBlock) {
    const int64_t blocks = (columns - first) / kBlock;
    F32 lines[2][kSpan] = {};
    for (int64_t i = 0; i < kSpan && i < blocks; i += 2) {
      const Elements e = elements_of(row, (first / kBlock + i) / 2, columns, format == Format::fp4);
      for (int64_t block = i; block < i + 2; ++block) {
        for (int half = 0; half < 2; ++half) {
          const __m512i tile = e.tile[block % 2];
          const __m256i words =
              half ? _mm512_extracti64x4_epi64(tile, 1) : _mm512_castsi512_si256(tile);
          const __m512i value = _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
          const __m512i exponent = _mm512_and_si512(value, exponent_bits);
          const __mmask16 normal = _mm512_test_epi32_mask(value, exponent_bits);
          least = _mm512_mask_min_epi32(least, normal, least, exponent);
          most = _mm512_max_epi32(most, exponent);
          F32* lane = &lines[half][block % 4 * 4 + block / 4];
          lane[0] = _mm512_maskz_mul_ps(normal, _mm512_castsi512_ps(value), factor);
          if (blocks <= kSpan / 2) lane[2] = lane[0];
        }
      }
    }
    for (int half = 0; half < 2; ++half) {
      transpose(lines[half]);
      for (int i = 0; i < kSpan; ++i) store(out + (half * kSpan + i) * kSpan, lines[half][i]);
    }
  }
  range->least = _mm512_reduce_min_epi32(least) >> 23;
  range->most = _mm512_reduce_max_epi32(most) >> 23;
}

// Token tile `tile` of `tokens` prepared rows.
void pack(const void* const* rows, int64_t tokens, int64_t columns, Format format, int64_t tile,
          void* packed) {
  const int64_t first = tile * kTokensOfTile;
  const int64_t count = tokens - first < kTokensOfTile ? tokens - first : kTokensOfTile;
  const int64_t width = width_for(count);
  auto* out = static_cast<uint32_t*>(packed) + first * (padded_columns(columns) / 2);
  if (count == 1 && has_spans(columns) && format != Format::bf16) {
    lay_spans(static_cast<const uint16_t*>(rows[first]), columns, format,
              reinterpret_cast<SpanRange*>(out + padded_columns(columns) / 2));
  }
  for (int64_t group = 0; group < padded_columns(columns) / 64; ++group) {
    F32 lines[2][16];
    for (int64_t t = 0; t < kTokensOfTile; ++t) {
      const Elements e = t < count ? elements_of(static_cast<const uint16_t*>(rows[first + t]),
                                                 group, columns, format == Format::fp4)
                                   : Elements{};
      for (int half = 0; half < 2; ++half) lines[half][t] = _mm512_castsi512_ps(e.tile[half]);
    }
    for (int half = 0; half < 2; ++half) {
      uint32_t* at = out + (group * 2 + half) * 16 * width;
      if (width == 1) {
        _mm512_storeu_ps(at, lines[half][0]);
        continue;
      }
      transpose(lines[half]);
      const __mmask16 used = static_cast<__mmask16>((1u << width) - 1);
      for (int i = 0; i < 16; ++i) _mm512_mask_storeu_ps(at + i * width, used, lines[half][i]);
    }
  }
}

}  // namespace
}  // namespace cachalot::cpu
