// Products of few rows that are one kernel with what stands beside them. For .cu files.
#pragma once

#include <optional>

#include "backend/cuda/dense_fp8_kernels.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/sparse_attention_keys.h"
#include "backend/cuda/window_rows.cuh"

namespace cachalot::cuda {

// What a product writes.
inline Bytes written_by(const Fp8Product& product, int64_t rows) {
  return {product.out.y, rows * product.weight.rows * int64_t{sizeof(bf16)}};
}

// Two products of the same rows that each have a norm, if quantizes_itself(). False: they are not
// of a kind, or too large; nothing was started.
bool linear_fp8_few_pair(Queue& queue, const View<const bf16>& x, const Fp8Product& first,
                         const Fp8Product& second);

// y = x . weight^T, heads of which the last channels are then turned, and the window rows of the
// same tokens: linear and prepare_query, bit by bit. With keys.packed, of one token, the keys that
// it attends to are packed beside it, this step's window row among them; or the same tokens are
// compressed.
bool fits_turning(const DenseMatrix& weight, int64_t rows);
void linear_fp8_few_turned(Queue& queue, const DenseMatrix& weight, const bf16* x, bf16* y,
                           const WindowRows& rows, int64_t tokens, const AttentionParameters& keys,
                           const std::optional<HeldCompression>& compression);

}  // namespace cachalot::cuda
