// The matrix kernels' code, included once per instruction set (matmul_kernels.h says what they do
// and in which order they add; matmul_rows.inc.h decodes).
//
// Few tokens: kTileRows weight rows are decoded in registers as they stream by, once for all
// tokens. Many tokens: kPanelRows rows x kPanelColumns columns are decoded into a panel for L1 that
// all tokens of a block of kTokenBlock then use; all panels of the same columns come one after the
// other, so that L2 keeps these columns of the activations, and the sums wait there between
// columns. Both fetch what comes next while they compute, the rows below or the product the thread
// takes afterwards: a processor's own prefetching stops at the page borders of every row.
#pragma once

#include "backend/cpu/kernels/matmul_rows.inc.h"

namespace cachalot::cpu {
namespace {

// Registers: rows * tokens accumulators, tokens activations and a weight fit 32 (AVX-512) or 16
// (AVX2) registers; a generic vector takes two of 16.
#if defined(__AVX512F__)
constexpr int kTileRows = 4, kTileTokens = 6;
constexpr int64_t kPanelColumns = 512;
#elif defined(__AVX2__)
constexpr int kTileRows = 4, kTileTokens = 3;
constexpr int64_t kPanelColumns = 256;
#else
constexpr int kTileRows = 2, kTileTokens = 2;
constexpr int64_t kPanelColumns = 256;
#endif
constexpr int64_t kTokenBlock = 192;
constexpr int64_t kFewRows = 32, kMostRows = 64;  // of a call
constexpr int64_t kPanelRows = 16;
static_assert(kPanelRows % kTileRows == 0 && kTokenBlock % kTileTokens == 0);
static_assert(kPanelColumns % kBlock == 0);

// Scratch: decoded weights, scaled activations of a tile, sums in waiting. A token's sums are a
// cache line more than a power of two apart: else a tile's would compete for the same cache sets.
constexpr int64_t kPanelFloats = kPanelRows * kPanelColumns;
constexpr int64_t kInputFloats = kTileTokens * kPanelColumns;
constexpr int64_t kSumStride = kMostRows * kLanes + 16;
constexpr int64_t kSumFloats = kTokenBlock * kSumStride;

// Scales of the 32-column tiles that `row` lies in.
template <class Row>
CACHALOT_INLINE const float* input_scales(const PackedWeight& w, int64_t row) {
  return Row::kScalesInput ? w.tile_scales + row / 32 * (w.columns / 32) : nullptr;
}

// Where at most `most` rows from `first` end: those of an FP8 weight share a scale tile.
template <class Row>
CACHALOT_INLINE int64_t end_of_rows(int64_t first, int64_t most, int64_t end) {
  int64_t last = first + most < end ? first + most : end;
  if (Row::kScalesInput && last > (first / 32 + 1) * 32) last = (first / 32 + 1) * 32;
  return last;
}

// ------------------------------------------------------------------------------------ few tokens

// Activations of one block: tokens' vectors, scaled where the weight leaves that to them.
template <class Row, int kTokens>
struct Input {
  F32 v[kTokens][kBlockVectors];

  CACHALOT_INLINE_MEMBER Input(const float* const* x, const float* scales, int64_t b) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; ++i) {
        v[t][i] = load(x[t] + b * kBlock + i * kLanes);
        if constexpr (Row::kScalesInput) v[t][i] *= splat(scales[b]);
      }
    }
  }
};

// Sums of kTileRows rows from `row` on and kTokens tokens, [kTileRows][kTokens]. A function of its
// own, so that nothing else wants its registers.
template <class Row, int kTokens>
__attribute__((noinline)) void dot_rows(Row row, const float* const* tokens, const float* scales,
                                        int64_t blocks, Fetcher& fetcher, float* out) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tokens[t];
  F32 sums[kTileRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
  }
  // Three rows by a pointer and the distance of rows, the last by its own.
  Row bottom = below(row, kTileRows - 1);
  Fetcher next = fetcher;
  for (int64_t b = 0; b < blocks; ++b) {
    if constexpr (!Row::kFetchesBelow) next.step(kTileRows * Row::kBytes);
    const Input<Row, kTokens> input(x, scales, b);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const Row here = r + 1 < kTileRows ? below(row, r) : bottom;
      if (Row::kFetchesBelow && b % (64 / Row::kBytes) == 0) {
        __builtin_prefetch(below(here, kTileRows).at(0));
      }
      const Block w = here.block(0);
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; ++i) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) sums[r][t] = fma(w.v[i], input.v[t][i], sums[r][t]);
      }
    }
    row.advance();
    bottom.advance();
  }
  fetcher = next;
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) out[r * kTokens + t] = sum(sums[r][t]) * Row::kOutputFactor;
  }
}

template <class Row, int kTokens>
void multiply_few(const Product& p) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const float*>(p.x[t]);
  const int64_t blocks = p.weight.columns / kBlock;
  Fetcher(p.next_scales).step(p.next_scales.bytes);
  Fetcher next(p.next_codes);
  for (int64_t first = p.first_row, last; first < p.last_row; first = last) {
    last = end_of_rows<Row>(first, kTileRows, p.last_row);
    Row row(p.weight, first);
    if (last - first < kTileRows) {  // the rest row by row
      last = first + 1;
      row.repeat();
    }
    float sums[kTileRows][kTokens];
    dot_rows<Row, kTokens>(row, x, input_scales<Row>(p.weight, first), blocks, next, sums[0]);
    for (int r = 0; r < last - first; ++r) {
      for (int t = 0; t < kTokens; ++t) put(p, t, first + r, sums[r][t]);
    }
  }
}

// ----------------------------------------------------------------------------------- many tokens

struct Rows {
  int64_t first, last;  // at most kPanelRows
};

// Whether a product with any of these scales is exact: then it is the same whether the weight or
// the activation is multiplied first, and the panel takes it. Larger ones could overflow an
// activation.
CACHALOT_INLINE bool exact_in_panel(const float* scales, int64_t count) {
  bool exact = true;
  for (int64_t b = 0; b < count; ++b) {
    const bool power_of_two = (float_to_bits(scales[b]) & 0x7FFFFFu) == 0;
    exact &= power_of_two && scales[b] >= 0x1p-64f && scales[b] <= 1.0f;
  }
  return exact;
}

// panel[row][column] for `rows` and `count` columns from `first`, in the format's order, times
// `scales` where given. Fetches what the panel of the next columns decodes.
template <class Row>
void decode_panel(const PackedWeight& w, Rows rows, int64_t first, int64_t count,
                  const float* scales, float* panel) {
  const int64_t first_block = first / kBlock, blocks = count / kBlock;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const Row row(w, clamped(rows.first + r, rows.last));
    float* out = panel + r * kPanelColumns;
    for (int64_t b = 0; b < blocks; ++b) {
      if (b % (64 / Row::kBytes) == 0) __builtin_prefetch(row.at(first_block + b + blocks), 0, 2);
      const Block block = row.block(first_block + b);
      const F32 scale = splat(Row::kScalesInput && scales ? scales[b] : 1.0f);
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; ++i) {
        store(out + b * kBlock + i * kLanes, Row::kScalesInput ? block.v[i] * scale : block.v[i]);
      }
    }
  }
}

// out[token][column] = x[token][column] * its tile's scale.
template <int kTokens>
void scale_input(const float** x, const float* scales, int64_t count, float* out) {
  for (int t = 0; t < kTokens; ++t) {
    for (int64_t b = 0; b < count / kBlock; ++b) {
      const F32 scale = splat(scales[b]);
#pragma GCC unroll 4
      for (int i = 0; i < kBlockVectors; ++i) {
        const int64_t k = b * kBlock + i * kLanes;
        store(out + t * kPanelColumns + k, load(x[t] + k) * scale);
      }
    }
    x[t] = out + t * kPanelColumns;
  }
}

// sums[token][row] += panel . x for kRows rows and kTokens tokens, kLanes partial sums each.
template <int kRows, int kTokens>
void multiply_tile(const float* panel, const float* const* x, int64_t count, float* sums) {
  F32 s[kRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) s[r][t] = load(sums + t * kSumStride + r * kLanes);
  }
  for (int64_t k = 0; k < count; k += kLanes) {
    F32 v[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) v[t] = load(x[t] + k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F32 w = load(panel + r * kPanelColumns + k);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) s[r][t] = fma(w, v[t], s[r][t]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store(sums + t * kSumStride + r * kLanes, s[r][t]);
  }
}

template <int kTokens>
void multiply_rows(const float** x, int64_t rows, int64_t count, const float* panel, float* sums) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    multiply_tile<kTileRows, kTokens>(panel + r * kPanelColumns, x, count, sums + r * kLanes);
  }
  // Not more: the sums behind them may be those of rows of another scale tile.
  for (; r < rows; ++r) {
    multiply_tile<1, kTokens>(panel + r * kPanelColumns, x, count, sums + r * kLanes);
  }
}

// Adds `count` columns from `column` to the sums of `rows` for all of the block's tokens.
template <class Row>
void multiply_panel(const Product& p, Rows rows, int64_t token, int64_t tokens, int64_t column,
                    int64_t count, float* scratch, float* sums) {
  float* panel = scratch;
  float* input = panel + kPanelFloats;
  const float* scales = nullptr;
  bool exact = false;
  if constexpr (Row::kScalesInput) {
    scales = input_scales<Row>(p.weight, rows.first) + column / kBlock;
    exact = exact_in_panel(scales, count / kBlock);
  }
  decode_panel<Row>(p.weight, rows, column, count, exact ? scales : nullptr, panel);
  for (int64_t t = 0; t < tokens; t += kTileTokens) {
    const int64_t now = tokens - t < kTileTokens ? tokens - t : kTileTokens;
    with_tokens<kTileTokens>(now, [&]<int kTokens>() {
      const float* x[kTokens];
      for (int i = 0; i < kTokens; ++i) {
        x[i] = static_cast<const float*>(p.x[token + t + i]) + column;
      }
      if (Row::kScalesInput && !exact) scale_input<kTokens>(x, scales, count, input);
      multiply_rows<kTokens>(x, rows.last - rows.first, count, panel, sums + t * kSumStride);
    });
  }
}

template <class Row>
void multiply_many(const Product& p, int64_t first, int64_t tokens, float* scratch) {
  float* sums = scratch + kPanelFloats + kInputFloats;
  __builtin_memset(sums, 0, static_cast<size_t>(tokens * kSumStride) * sizeof(float));
  for (int64_t column = 0; column < p.weight.columns; column += kPanelColumns) {
    const int64_t left = p.weight.columns - column;
    const int64_t count = left < kPanelColumns ? left : kPanelColumns;
    for (Rows rows = {p.first_row, 0}; rows.first < p.last_row; rows.first = rows.last) {
      rows.last = end_of_rows<Row>(rows.first, kPanelRows, p.last_row);
      multiply_panel<Row>(p, rows, first, tokens, column, count, scratch,
                          sums + (rows.first - p.first_row) * kLanes);
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t row = p.first_row; row < p.last_row; ++row) {
      const F32 total = load(sums + t * kSumStride + (row - p.first_row) * kLanes);
      put(p, first + t, row, sum(total) * Row::kOutputFactor);
    }
  }
}

template <class Row>
void multiply_with(const Product& p, float* scratch) {
  if (p.tokens <= kTileTokens) {
    with_tokens<kTileTokens>(p.tokens, [&]<int kTokens>() { multiply_few<Row, kTokens>(p); });
    return;
  }
  for (int64_t t = 0; t < p.tokens; t += kTokenBlock) {
    const int64_t tokens = p.tokens - t < kTokenBlock ? p.tokens - t : kTokenBlock;
    multiply_many<Row>(p, t, tokens, scratch);
  }
}

void multiply(const Product& product, void* scratch) {
  auto* floats = static_cast<float*>(scratch);
  switch (product.weight.format) {
    case Format::bf16:
      return multiply_with<Bf16Row>(product, floats);
    case Format::fp8:
      return multiply_with<Fp8Row>(product, floats);
    case Format::fp4:
      return multiply_with<Fp4Row>(product, floats);
  }
}

// ------------------------------------------------------------------------------------ activations

const Order& order_of(Format format) {
  static constexpr Order kNatural = natural_order();
  return format == Format::fp4 ? kFp4Order : format == Format::fp8 ? kFp8Order : kNatural;
}

CACHALOT_INLINE void store_in_order(const float* values, const Order& order, float* out) {
  for (int i = 0; i < kBlock; ++i) out[i] = values[order.column[i]];
}

void quantize(const bf16* x, int64_t first, int64_t count, Format format, void* row) {
  float* out = static_cast<float*>(row) + first;
  const Order& order = order_of(format);
  for (int64_t k = 0; k < count; k += kBlock) {
    const Block rounded = round_group(x + k);
    float values[kBlock];
    for (int i = 0; i < kBlockVectors; ++i) store(values + i * kLanes, rounded.v[i]);
    store_in_order(values, order, out + k);
  }
}

void keep(const bf16* x, int64_t first, int64_t count, Format format, void* row) {
  float* out = static_cast<float*>(row) + first;
  const Order& order = order_of(format);
  for (int64_t k = 0; k < count; k += kBlock) {
    float values[kBlock];
    for (int i = 0; i < kBlock; i += kLanes) store(values + i, load_bf16(x + k + i));
    store_in_order(values, order, out + k);
  }
}

constexpr MatmulKernels kTable = {
    .activation_size = sizeof(float),
    .quantize = quantize,
    .keep = keep,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .few_rows = kFewRows,
    .many_rows = kMostRows,
    .tile_rows = kTileRows,
    .tile_tokens = kTileTokens,
    .scratch_bytes = (kPanelFloats + kInputFloats + kSumFloats) * 4,
    .multiply = multiply,
    .gated = gated,
    .sum_experts = sum_experts,
};

}  // namespace
}  // namespace cachalot::cpu
