// The two kernels behind multiply_fp8(), which give the same bits. Neither applies a norm.
#pragma once

#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/plan/dense_fp8_plan.h"

namespace cachalot::cuda {

// Few rows of x: the weight is the product's M operand, and its bytes are what takes time. Rows of
// x beyond the kernel's width read the weight again.
void multiply_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight,
                      const QuantizedRows& x, const Fp8Output& out);
// The same of rows that are not quantized yet, if quantizes_itself().
void linear_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x,
                    int64_t rows, const Fp8Output& out);
bool quantizes_itself(const DenseMatrix& weight, int64_t rows);
// Many rows: x is the M operand, and products are what takes time.
void multiply_fp8_many(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                       const Fp8Output& out);

}  // namespace cachalot::cuda
