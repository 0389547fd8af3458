// Weight matrices as the checkpoint stores them: [rows = outputs, columns = inputs], read packed.
#pragma once

#include "tensor/view.h"

namespace cachalot {

inline constexpr int64_t kScaleBlock = 32;

constexpr int64_t blocks_of(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

// Either FP8 E4M3 with one scale per 32 x 32 tile, or plain BF16.
struct DenseMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  View<const uint8_t> codes;  // [rows, columns] E4M3; absent for BF16
  View<const float> scales;   // [blocks_of(rows), blocks_of(columns)] the tiles' scales as floats
  View<const bf16> values;    // [rows, columns]; absent for FP8

  bool quantized() const { return codes.present(); }
  int64_t bytes() const { return codes.bytes() + scales.elements() + values.bytes(); }
};

// FP4 E2M1, two values a byte (low nibble = even column), one E8M0 scale per row and 32 columns.
struct Fp4Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  View<const uint8_t> codes;   // [rows, columns / 2]
  View<const uint8_t> scales;  // [rows, columns / 32] E8M0

  int64_t bytes() const { return codes.bytes() + scales.bytes(); }
};

// One gated expert: w2 (silu(w1 x) * w3 x).
struct ExpertMatrices {
  Fp4Matrix w1;  // [width, dim]
  Fp4Matrix w2;  // [dim, width]
  Fp4Matrix w3;  // [width, dim]
};

struct SharedExpertMatrices {
  DenseMatrix w1, w2, w3;  // as above, FP8
};

}  // namespace cachalot
