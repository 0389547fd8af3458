// y[t][g] = x[t][g] . weight[g]^T with BF16 inputs and BF16 or exactly expanded FP8 weights, FP32
// sums: what linear with BF16 weights, grouped_linear and head have in common.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/queue.h"
#include "tensor/matrix.h"

namespace cachalot::cuda {

struct Product {
  const char* operation = "";
  const __nv_bfloat16* x = nullptr;  // [tokens, groups, weight.columns]
  DenseMatrix weight;                // [groups * rows, columns]
  int64_t tokens = 0, groups = 1;
  const __nv_bfloat16* bias = nullptr;  // [groups * rows], or none
  // [tokens, groups, rows], one of them: RNE_BF16(sum + bias), or the sums.
  __nv_bfloat16* y = nullptr;
  float* y_f32 = nullptr;
};

void multiply(Queue& queue, Scratch& scratch, const Product& product);

}  // namespace cachalot::cuda
