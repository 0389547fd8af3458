// The two kernels behind multiply_fp8(), which give the same bits.
#pragma once

#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/plan/dense_fp8_plan.h"

namespace cachalot::cuda {

// Few rows of x: the weight is the product's M operand, and its bytes are what takes time. Rows of
// x beyond the kernel's width read the weight again.
void multiply_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight,
                      const QuantizedRows& x, const Fp8Output& out);
// Many rows: x is the M operand, and products are what takes time.
void multiply_fp8_many(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                       const Fp8Output& out);

}  // namespace cachalot::cuda
