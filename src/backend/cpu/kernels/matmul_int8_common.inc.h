// Activations as int8, for the kernels that multiply them with FP4 weights in integers.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

// 32 columns of a prepared row, in the order the instruction set decodes weights in.
struct alignas(64) Int8Block {
  int8_t q[kBlock];
  float half_scale;  // weights are doubled
  int32_t offset;    // -12 * sum of q: weights made unsigned are 12 too large
};
static_assert(sizeof(Int8Block) == 64);

// Codes and scales of kRows rows from `first` on; beyond the last one it stands again.
template <int kRows>
struct WeightRows {
  WeightRows(const Product& p, int64_t first) {
    const PackedWeight& w = p.weight;
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = clamped(first + r, p.last_row);
      codes[r] = w.data + row * w.row_bytes();
      scales[r] = w.row_scales + row * (w.columns / kBlock);
    }
  }

  const uint8_t* codes[kRows];
  const uint8_t* scales[kRows];
};

// scale = largest / 127, q = RNE(x / scale), all zero where the scale is.
template <class ColumnAt>
CACHALOT_INLINE void quantize_blocks(const bf16* x, int64_t columns, const ColumnAt& column_at,
                                     Int8Block* out) {
  constexpr float kRounder = 0x1.8p23f;
  for (int64_t k = 0; k < columns; k += kBlock, ++out) {
    F32 v[kBlockVectors];
    F32 largest = splat(0.0f);
    for (int i = 0; i < kBlockVectors; ++i) {
      v[i] = load_bf16(x + k + i * kLanes);
      largest = max(abs(v[i]), largest);
    }
    const float scale = max_of(largest) / 127.0f;
    float rounded[kBlock];
    for (int i = 0; i < kBlockVectors; ++i) {
      const F32 q = scale > 0 ? v[i] / splat(scale) : splat(0.0f);
      store(rounded + i * kLanes, (q + kRounder) - kRounder);
    }
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      out->q[i] = static_cast<int8_t>(rounded[column_at(i)]);
      sum += out->q[i];
    }
    out->half_scale = scale * 0.5f;
    out->offset = -12 * sum;
  }
}

constexpr MatmulKernels int8_table(void (*quantize)(const bf16*, int64_t, int64_t, Format, void*),
                                   void (*multiply)(const Product&, void*), int64_t scratch) {
  return {.activation_size = sizeof(Int8Block) / kBlock,
          .quantize = quantize,
          .keep = nullptr,
          .packed_bytes = nullptr,
          .pack = nullptr,
          .few_rows = 32,
          .many_rows = 64,
          .tile_rows = 32,
          .tile_tokens = 1,
          .scratch_bytes = scratch,
          .multiply = multiply,
          .gated = gated,
          .sum_experts = sum_experts};
}

}  // namespace
}  // namespace cachalot::cpu
