// The matrix kernels' code, included once per instruction set (matmul_kernels.h says what they do
// and in which order they add).
//
// Few tokens: kTileRows weight rows are decoded in registers as they stream by, once for all
// tokens. Many tokens: kOutputBlock rows x kPanelColumns columns are decoded into an L1-sized panel
// that all tokens of a block of kTokenBlock then use; accumulators wait in scratch between panels.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// Registers: rows * tokens accumulators, tokens activations and a weight fit 32 (AVX-512) or 16
// (AVX2) registers; a generic vector takes two of 16.
#if defined(__AVX512F__)
constexpr int kTileRows = 4, kTileTokens = 6;
#elif defined(__AVX2__)
constexpr int kTileRows = 4, kTileTokens = 3;
#else
constexpr int kTileRows = 2, kTileTokens = 2;
#endif
constexpr int64_t kPanelColumns = 256;
constexpr int64_t kTokenBlock = 192;
static_assert(kOutputBlock % kTileRows == 0 && kTokenBlock % kTileTokens == 0);
static_assert(kPanelColumns % kBlock == 0);

constexpr int64_t kPanelFloats = kOutputBlock * kPanelColumns;
constexpr int64_t kSumFloats = kOutputBlock * kTokenBlock * kLanes;

// ------------------------------------------------------------------------------------ weight rows

// One row of a weight: block(b) gives columns 32 b .. 32 b + 31, scaled, times kDecodeFactor for
// FP8 and FP4. The product with a scale is exact when that is a power of two.
struct Bf16Row {
  const uint8_t* values;

  Bf16Row(const PackedWeight& w, int64_t row) : values(w.data + row * w.row_bytes()) {}
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const {
    Block out;
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) {
      out.v[i] = load_bf16(values + (b * kBlock + i * kLanes) * 2);
    }
    return out;
  }
};

CACHALOT_INLINE Block scaled(Block block, float scale) {
  const F32 s = splat(scale);
#pragma GCC unroll 4
  for (int i = 0; i < kBlockVectors; ++i) block.v[i] *= s;
  return block;
}

struct Fp8Row {
  const uint8_t* codes;
  const float* scales;

  Fp8Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), scales(w.tile_scales + row / 32 * (w.columns / 32)) {}
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const {
    return scaled(load_e4m3_block(codes + b * kBlock), scales[b]);
  }
};

struct Fp4Row {
  const uint8_t* codes;
  const uint8_t* scales;

  Fp4Row(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), scales(w.row_scales + row * (w.columns / 32)) {}
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const {
    return scaled(load_e2m1_block(codes + b * (kBlock / 2)), e8m0_value(scales[b]));
  }
};

// ------------------------------------------------------------------------------------ few tokens

template <class Row, int kTokens>
void multiply_few(const Product& p, int64_t token) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const float*>(p.x[token + t]);
  const int64_t blocks = p.weight.columns / kBlock;
  for (int64_t first = p.first_row; first < p.last_row; first += kTileRows) {
    Row rows[kTileRows] = {
      Row(p.weight, first),
      Row(p.weight, clamped(first + 1, p.last_row)),
#if defined(__AVX2__)
      Row(p.weight, clamped(first + 2, p.last_row)),
      Row(p.weight, clamped(first + 3, p.last_row))
#endif
    };
    F32 sums[kTileRows][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
    }
    for (int64_t b = 0; b < blocks; ++b) {
      // Two rows at a time: their additions do not wait for one another.
#pragma GCC unroll 2
      for (int r = 0; r < kTileRows; r += 2) {
        const Block w[2] = {rows[r].block(b), rows[r + 1].block(b)};
#pragma GCC unroll 4
        for (int i = 0; i < kBlockVectors; ++i) {
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const F32 v = load(x[t] + b * kBlock + i * kLanes);
            sums[r][t] = fma(w[0].v[i], v, sums[r][t]);
            sums[r + 1][t] = fma(w[1].v[i], v, sums[r + 1][t]);
          }
        }
      }
    }
    for (int r = 0; r < kTileRows && first + r < p.last_row; ++r) {
      for (int t = 0; t < kTokens; ++t) put(p, token + t, first + r, sum(sums[r][t]));
    }
  }
}

// ----------------------------------------------------------------------------------- many tokens

// panel[row][column] for columns first .. first + count - 1 of the product's rows.
template <class Row>
void decode_panel(const Product& p, int64_t first, int64_t count, float* panel) {
  for (int64_t r = 0; r < kOutputBlock; ++r) {
    const Row row(p.weight, clamped(p.first_row + r, p.last_row));
    float* out = panel + r * kPanelColumns;
    for (int64_t b = 0; b < count / kBlock; ++b) {
      const Block w = row.block(first / kBlock + b);
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; ++i) store(out + b * kBlock + i * kLanes, w.v[i]);
    }
  }
}

// sums[token][row] += panel . x for kTileRows rows and kTokens tokens, kLanes partial sums each.
template <int kTokens>
void multiply_tile(const float* panel, const float* const* x, int64_t count, float* sums) {
  F32 s[kTileRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) s[r][t] = load(sums + (t * kOutputBlock + r) * kLanes);
  }
  for (int64_t k = 0; k < count; k += kLanes) {
    F32 v[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) v[t] = load(x[t] + k);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const F32 w = load(panel + r * kPanelColumns + k);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) s[r][t] = fma(w, v[t], s[r][t]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store(sums + (t * kOutputBlock + r) * kLanes, s[r][t]);
  }
}

template <int kTokens>
void multiply_rows(const Product& p, int64_t token, int64_t column, int64_t count,
                   const float* panel, float* sums) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const float*>(p.x[token + t]) + column;
  for (int64_t r = 0; r < p.last_row - p.first_row; r += kTileRows) {
    multiply_tile<kTokens>(panel + r * kPanelColumns, x, count, sums + r * kLanes);
  }
}

template <class Row>
void multiply_many(const Product& p, int64_t first, int64_t tokens, float* panel, float* sums) {
  __builtin_memset(sums, 0, static_cast<size_t>(tokens * kOutputBlock * kLanes) * sizeof(float));
  for (int64_t column = 0; column < p.weight.columns; column += kPanelColumns) {
    const int64_t left = p.weight.columns - column;
    const int64_t count = left < kPanelColumns ? left : kPanelColumns;
    decode_panel<Row>(p, column, count, panel);
    for (int64_t t = 0; t < tokens; t += kTileTokens) {
      const int64_t now = tokens - t < kTileTokens ? tokens - t : kTileTokens;
      with_tokens<kTileTokens>(now, [&]<int kTokens>() {
        multiply_rows<kTokens>(p, first + t, column, count, panel,
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
void multiply_with(const Product& p, float* panel, float* sums) {
  if (p.tokens <= kTileTokens) {
    with_tokens<kTileTokens>(p.tokens, [&]<int kTokens>() { multiply_few<Row, kTokens>(p, 0); });
    return;
  }
  for (int64_t t = 0; t < p.tokens; t += kTokenBlock) {
    const int64_t tokens = p.tokens - t < kTokenBlock ? p.tokens - t : kTokenBlock;
    multiply_many<Row>(p, t, tokens, panel, sums);
  }
}

void multiply(const Product& product, void* scratch) {
  float* panel = static_cast<float*>(scratch);
  float* sums = panel + kPanelFloats;
  switch (product.weight.format) {
    case Format::bf16:
      return multiply_with<Bf16Row>(product, panel, sums);
    case Format::fp8:
      return multiply_with<Fp8Row>(product, panel, sums);
    case Format::fp4:
      return multiply_with<Fp4Row>(product, panel, sums);
  }
}

// ------------------------------------------------------------------------------------ activations

void quantize(const bf16* x, int64_t columns, void* prepared) {
  float* out = static_cast<float*>(prepared);
  for (int64_t k = 0; k < columns; k += kBlock) {
    F32 v[kBlockVectors];
    F32 largest = splat(0.0f);
    for (int i = 0; i < kBlockVectors; ++i) {
      v[i] = load_bf16(x + k + i * kLanes);
      largest = max(abs(v[i]), largest);
    }
    const uint8_t code = fp8_scale_code_of(max_of(largest));
    // Dividing by a power of two is multiplying by its inverse, exact in both directions. The
    // product carries the inverse of kDecodeFactor.
    const F32 inverse = splat(bits_to_float(uint32_t{254u - code} << 23));
    const F32 scale = splat(bits_to_float(uint32_t{code} << 23));
    for (int i = 0; i < kBlockVectors; ++i) {
      store(out + k + i * kLanes, round_e4m3(v[i] * inverse) * scale * (1 / kDecodeFactor));
    }
  }
}

void keep(const bf16* x, int64_t columns, Format format, void* prepared) {
  float* out = static_cast<float*>(prepared);
  const F32 factor = splat(format == Format::bf16 ? 1.0f : 1 / kDecodeFactor);
  for (int64_t k = 0; k < columns; k += kLanes) store(out + k, load_bf16(x + k) * factor);
}

constexpr MatmulKernels kTable = {
    .activation_size = sizeof(float),
    .quantize = quantize,
    .keep = keep,
    .scratch_bytes = (kPanelFloats + kSumFloats) * 4,
    .multiply = multiply,
    .gated = gated,
    .sum_experts = sum_experts,
};

}  // namespace
}  // namespace cachalot::cpu
