// The matrix kernels on the BF16 dot product of AVX-512 (vdpbf16ps), instead of matmul.inc.h.
//
// Every operand is exact in BF16: E4M3 and E2M1 codes without their scale, and activations,
// quantized or not. One instruction multiplies 32 columns, twice what an FP32 lane takes, and a
// weight is decoded into half the registers. Lane l of an output's accumulator takes columns 2 l
// and 2 l + 1 of every block of 32; a scaled block is summed from zero and joins by fma(partial,
// scale, acc). The order is the same for every number of tokens. The instruction flushes denormals,
// which no such product is: codes are at least 2^-9, quantized activations 2^-31.
#pragma once

#include "backend/cpu/kernels/matmul_bf16_activations.inc.h"
#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// 4 x 4 accumulators, 4 activations, 4 weights and 4 partial sums in 32 registers.
constexpr int kTileRows = 4, kTileTokens = 4;
constexpr int64_t kPanelColumns = 512;
constexpr int64_t kPanelBlocks = kPanelColumns / kBlock;
constexpr int64_t kTokenBlock = 192;
static_assert(kOutputBlock % kTileRows == 0 && kTokenBlock % kTileTokens == 0);

// Scratch: decoded codes, their scales, sums in waiting.
constexpr int64_t kPanelBytes = kOutputBlock * kPanelColumns * 2;
constexpr int64_t kScaleBytes = kOutputBlock * kPanelBlocks * 4;
constexpr int64_t kSumBytes = kOutputBlock * kTokenBlock * kLanes * 4;

using Pairs = __m512bh;  // 32 BF16 values

CACHALOT_INLINE Pairs load_pairs(const void* p) { return (Pairs)_mm512_loadu_si512(p); }

// 32 E4M3 codes -> BF16. A normal code's bits fit in at exponent 120 above; the seven subnormals
// come from a table.
CACHALOT_INLINE Pairs decode_e4m3(const uint8_t* codes) {
  const __m512i words =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7F));
  const __m512i normal =
      _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  // m * 2^-9 for m = 0..7, repeated: only three bits of the index matter.
  const __m512i subnormals = _mm512_broadcast_i32x4(
      _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
  const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  const __m512i value = _mm512_mask_permutexvar_epi16(normal, small, magnitude, subnormals);
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(words, _mm512_set1_epi16(0x80)), 8);
  return (Pairs)_mm512_or_si512(value, sign);
}

// 16 bytes of two E2M1 codes each, the low nibble first -> BF16.
CACHALOT_INLINE Pairs decode_e2m1(const uint8_t* codes) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i high = _mm_srli_epi16(packed, 4);
  const __m256i bytes =
      _mm256_set_m128i(_mm_unpackhi_epi8(packed, high), _mm_unpacklo_epi8(packed, high));
  // Bit 4 of an index is a neighbour's: both halves of the table are the same.
  const __m256i grid =
      _mm256_setr_epi16(0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, -0x8000, -0x4100,
                        -0x4080, -0x4040, -0x4000, -0x3FC0, -0x3F80, -0x3F40);
  return (Pairs)_mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(bytes), _mm512_broadcast_i64x4(grid));
}

// One row of a weight: block(b) gives columns 32 b .. 32 b + 31, to be multiplied by scale(b).
struct Bf16Row {
  static constexpr bool kScaled = false;
  const uint8_t* values;

  Bf16Row(const PackedWeight& w, int64_t row) : values(w.data + row * w.row_bytes()) {}
  CACHALOT_INLINE_MEMBER Pairs block(int64_t b) const {
    return load_pairs(values + b * kBlock * 2);
  }
  CACHALOT_INLINE_MEMBER float scale(int64_t) const { return 1.0f; }
};

struct Fp8Row {
  static constexpr bool kScaled = true;
  const uint8_t* codes;
  const float* scales;

  Fp8Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), scales(w.tile_scales + row / 32 * (w.columns / 32)) {}
  CACHALOT_INLINE_MEMBER Pairs block(int64_t b) const { return decode_e4m3(codes + b * kBlock); }
  CACHALOT_INLINE_MEMBER float scale(int64_t b) const { return scales[b]; }
};

struct Fp4Row {
  static constexpr bool kScaled = true;
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), scales(w.row_scales + row * (w.columns / 32)) {}
  CACHALOT_INLINE_MEMBER Pairs block(int64_t b) const {
    return decode_e2m1(codes + b * (kBlock / 2));
  }
  CACHALOT_INLINE_MEMBER float scale(int64_t b) const { return e8m0_value(scales[b]); }
};

template <bool kScaled>
CACHALOT_INLINE F32 accumulate(F32 sum, Pairs weight, Pairs x, F32 scale) {
  if constexpr (!kScaled) return _mm512_dpbf16_ps(sum, weight, x);
  return fma(_mm512_dpbf16_ps(_mm512_setzero_ps(), weight, x), scale, sum);
}

template <class Row, int kTokens>
void multiply_few(const Product& p) {
  const uint16_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const uint16_t*>(p.x[t]);
  const int64_t blocks = p.weight.columns / kBlock;
  for (int64_t first = p.first_row; first < p.last_row; first += kTileRows) {
    const Row rows[kTileRows] = {Row(p.weight, first),
                                 Row(p.weight, clamped(first + 1, p.last_row)),
                                 Row(p.weight, clamped(first + 2, p.last_row)),
                                 Row(p.weight, clamped(first + 3, p.last_row))};
    F32 sums[kTileRows][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
    }
    for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) {
        const Pairs w = rows[r].block(b);
        const F32 scale = splat(rows[r].scale(b));
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          sums[r][t] =
              accumulate<Row::kScaled>(sums[r][t], w, load_pairs(x[t] + b * kBlock), scale);
        }
      }
    }
    for (int r = 0; r < kTileRows && first + r < p.last_row; ++r) {
      for (int t = 0; t < kTokens; ++t) put(p, t, first + r, sum(sums[r][t]));
    }
  }
}

// panel[row][column] and scales[row][block] for columns first .. first + count - 1.
template <class Row>
void decode_panel(const Product& p, int64_t first, int64_t count, uint16_t* panel, float* scales) {
  for (int64_t r = 0; r < kOutputBlock; ++r) {
    const Row row(p.weight, clamped(p.first_row + r, p.last_row));
    for (int64_t b = 0; b < count / kBlock; ++b) {
      _mm512_storeu_si512(panel + r * kPanelColumns + b * kBlock,
                          (__m512i)row.block(first / kBlock + b));
      scales[r * kPanelBlocks + b] = row.scale(first / kBlock + b);
    }
  }
}

// sums[token][row] += panel . x for kTileRows rows and kTokens tokens, kLanes partial sums each.
template <bool kScaled, int kTokens>
void multiply_tile(const uint16_t* panel, const float* scales, const uint16_t* const* x,
                   int64_t blocks, float* sums) {
  F32 s[kTileRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) s[r][t] = load(sums + (t * kOutputBlock + r) * kLanes);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    Pairs v[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) v[t] = load_pairs(x[t] + b * kBlock);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const Pairs w = load_pairs(panel + r * kPanelColumns + b * kBlock);
      const F32 scale = splat(scales[r * kPanelBlocks + b]);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) s[r][t] = accumulate<kScaled>(s[r][t], w, v[t], scale);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) store(sums + (t * kOutputBlock + r) * kLanes, s[r][t]);
  }
}

template <bool kScaled, int kTokens>
void multiply_rows(const Product& p, int64_t token, int64_t column, int64_t count,
                   const uint16_t* panel, const float* scales, float* sums) {
  const uint16_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const uint16_t*>(p.x[token + t]) + column;
  for (int64_t r = 0; r < p.last_row - p.first_row; r += kTileRows) {
    multiply_tile<kScaled, kTokens>(panel + r * kPanelColumns, scales + r * kPanelBlocks, x,
                                    count / kBlock, sums + r * kLanes);
  }
}

template <class Row>
void multiply_many(const Product& p, int64_t first, int64_t tokens, uint16_t* panel, float* scales,
                   float* sums) {
  __builtin_memset(sums, 0, static_cast<size_t>(tokens * kOutputBlock * kLanes) * sizeof(float));
  for (int64_t column = 0; column < p.weight.columns; column += kPanelColumns) {
    const int64_t left = p.weight.columns - column;
    const int64_t count = left < kPanelColumns ? left : kPanelColumns;
    decode_panel<Row>(p, column, count, panel, scales);
    for (int64_t t = 0; t < tokens; t += kTileTokens) {
      const int64_t now = tokens - t < kTileTokens ? tokens - t : kTileTokens;
      with_tokens<kTileTokens>(now, [&]<int kTokens>() {
        multiply_rows<Row::kScaled, kTokens>(p, first + t, column, count, panel, scales,
                                             sums + t * kOutputBlock * kLanes);
      });
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t row = p.first_row; row < p.last_row; ++row) {
      put(p, first + t, row, sum(load(sums + (t * kOutputBlock + row - p.first_row) * kLanes)));
    }
  }
}

template <class Row>
void multiply_with(const Product& p, void* scratch) {
  if (p.tokens <= kTileTokens) {
    with_tokens<kTileTokens>(p.tokens, [&]<int kTokens>() { multiply_few<Row, kTokens>(p); });
    return;
  }
  auto* bytes = static_cast<uint8_t*>(scratch);
  auto* panel = reinterpret_cast<uint16_t*>(bytes);
  auto* scales = reinterpret_cast<float*>(bytes + kPanelBytes);
  auto* sums = reinterpret_cast<float*>(bytes + kPanelBytes + kScaleBytes);
  for (int64_t t = 0; t < p.tokens; t += kTokenBlock) {
    const int64_t tokens = p.tokens - t < kTokenBlock ? p.tokens - t : kTokenBlock;
    multiply_many<Row>(p, t, tokens, panel, scales, sums);
  }
}

void multiply(const Product& product, void* scratch) {
  switch (product.weight.format) {
    case Format::bf16:
      return multiply_with<Bf16Row>(product, scratch);
    case Format::fp8:
      return multiply_with<Fp8Row>(product, scratch);
    case Format::fp4:
      return multiply_with<Fp4Row>(product, scratch);
  }
}

constexpr MatmulKernels kTable = {
    .activation_size = sizeof(bf16),
    .quantize = quantize,
    .keep = keep,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .few_rows = kOutputBlock,
    .many_rows = kOutputBlock,
    .tile_rows = kOutputBlock,
    .tile_tokens = 1,
    .scratch_bytes = kPanelBytes + kScaleBytes + kSumBytes,
    .multiply = multiply,
    .gated = gated,
    .sum_experts = sum_experts,
};

}  // namespace
}  // namespace cachalot::cpu
