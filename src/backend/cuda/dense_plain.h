// Matrix products of any shape, one weight row to a warp: for small and odd matrices.
#pragma once

#include "backend/cuda/dense_fp8.h"

namespace cachalot::cuda {

void multiply_plain(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                    const Fp8Output& out);

}  // namespace cachalot::cuda
