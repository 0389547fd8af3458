// The seam's matrices as the kernels take them.
#pragma once

#include <algorithm>

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

// Tells a product which rows of which weight its thread takes next.
inline void announce(Product& product, const PackedWeight& next, int64_t first, int64_t last) {
  product.next_codes = {next.data + first * next.row_bytes(), (last - first) * next.row_bytes()};
  if (next.format == PackedWeight::Format::fp4) {
    const int64_t scales = next.columns / 32;
    product.next_scales = {next.row_scales + first * scales, (last - first) * scales};
  }
}

// How outputs are divided into pieces of work. Fewer rows than the kernels would like where the
// threads would otherwise wait for the slowest; a piece's size never changes a result.
struct OutputPieces {
  int64_t rows;   // outputs
  int64_t block;  // outputs of a piece

  // `products` have as many outputs each and are computed together.
  OutputPieces(const MatmulKernels& kernels, int64_t outputs, int64_t tokens, int threads,
               int64_t products = 1)
      : rows(outputs), block(tokens > 2 * kPackTokens ? kernels.many_rows : kernels.few_rows) {
    while (block > kernels.few_rows && count() < int64_t{4} * threads) block /= 2;
    if (threads == 1 || tokens > kernels.tile_tokens) return;
    // Weights stream by, and a piece costs little: none should wait long for the last.
    while (block > kernels.tile_rows && products * count() < int64_t{16} * threads) block /= 2;
  }
  int64_t count() const { return (rows + block - 1) / block; }
  int64_t first(int64_t piece) const { return piece * block; }
  int64_t last(int64_t piece) const { return std::min(rows, (piece + 1) * block); }
};

// Bytes from one prepared row to the next: of kPreparedColumns or a multiple, among which kernels
// may leave gaps. A cache line more than the values: rows a multiple of 4096 bytes apart would
// compete for the same cache sets.
inline int64_t activation_stride(const MatmulKernels& kernels, int64_t columns) {
  const int64_t prepared = (columns + kPreparedColumns - 1) / kPreparedColumns * kPreparedColumns;
  return prepared * kernels.activation_size + 64;
}

}  // namespace cachalot::cpu
