// Products of quantized activations with FP8 weights: y = x . weight^T (spec: model, 2.5).
//
// Per block of 32 columns, ascending: sum = fma(products of the block, x's scale * the tile's
// scale, sum), the block's products added by the tensor core. Long rows are cut into chunks by the
// weight's shape alone (plan/dense_fp8_plan.h), whose sums are added in ascending order. So an
// element has the same bits however many rows x has.
#pragma once

#include "backend/cuda/quantize_fp8.h"
#include "tensor/matrix.h"

namespace cachalot::cuda {

// Where a product goes: exactly one of y and y_f32.
struct Fp8Output {
  bf16* y = nullptr;           // [rows, out], at a multiple of 16
  float* y_f32 = nullptr;      // [rows, out] unrounded; neither bias nor norm
  const bf16* bias = nullptr;  // [out]
  const bf16* norm = nullptr;  // [out]
  float norm_eps = 0;
};

struct Fp8Product {
  DenseMatrix weight;
  Fp8Output out;
};

// x.columns == weight.columns. x is read, its weight fetched before that.
void multiply_fp8(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                  const Fp8Output& out);

// The same of x [rows, weight.columns], at a multiple of 16 bytes, which is quantized first.
void linear_fp8(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x,
                int64_t rows, const Fp8Output& out);
// Whether that is one kernel, which can take up what stands beside it (dense_fp8_few.h).
bool quantizes_inside(const DenseMatrix& weight, int64_t rows, const Fp8Output& out);
// Two products of the same rows that each have a norm, and neither of which is one kernel: rows are
// quantized once.
bool quantizes_before(const DenseMatrix& weight, int64_t rows, const Fp8Output& out);
// Before one of them is held: memory that the two need cannot be had while a graph is captured, and
// until then each may have run by itself.
void prepare_pairs(Queue& queue);
void linear_fp8_pair(Queue& queue, const View<const bf16>& x, const Fp8Product& first,
                     const Fp8Product& second);

}  // namespace cachalot::cuda
