// The seam's matrices as the kernels take them.
#pragma once

#include "backend/cpu/kernels/matmul_kernels.h"
#include "base/check.h"
#include "tensor/matrix.h"

namespace cachalot::cpu {

inline PackedWeight packed(const DenseMatrix& matrix) {
  CACHALOT_CHECK(matrix.columns % kScaleBlock == 0, "{} columns", matrix.columns);
  PackedWeight weight{.rows = matrix.rows, .columns = matrix.columns};
  if (matrix.quantized()) {
    weight.format = PackedWeight::Format::fp8;
    weight.data = matrix.codes.data;
    weight.tile_scales = matrix.scales.data;
  } else {
    weight.format = PackedWeight::Format::bf16;
    weight.data = reinterpret_cast<const uint8_t*>(matrix.values.data);
  }
  return weight;
}

inline PackedWeight packed(const Fp4Matrix& matrix) {
  CACHALOT_CHECK(matrix.columns % kScaleBlock == 0, "{} columns", matrix.columns);
  return {.format = PackedWeight::Format::fp4,
          .rows = matrix.rows,
          .columns = matrix.columns,
          .data = matrix.codes.data,
          .row_scales = matrix.scales.data};
}

inline int64_t output_blocks(int64_t rows) { return (rows + kOutputBlock - 1) / kOutputBlock; }

// Bytes from one prepared row to the next. A cache line more than the values: rows a multiple of
// 4096 bytes apart would compete for the same cache sets.
inline int64_t activation_stride(const MatmulKernels& kernels, int64_t columns) {
  return (columns * kernels.activation_size + 63) / 64 * 64 + 64;
}

}  // namespace cachalot::cpu
