// A product with one warp per element: any shape, slow. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "backend/cuda/launch.h"
#include "tensor/matrix.h"

namespace cachalot::cuda {

__device__ inline float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

// One row of weights as FP32 numbers.
struct PlainWeight {
  const uint8_t* codes;
  const float* scales;
  const __nv_bfloat16* values;
  int64_t columns;

  explicit PlainWeight(const DenseMatrix& matrix)
      : codes(matrix.codes.data),
        scales(matrix.scales.data),
        values(reinterpret_cast<const __nv_bfloat16*>(matrix.values.data)),
        columns(matrix.columns) {}

  __device__ float at(int64_t row, int64_t column) const {
    if (codes == nullptr) return __bfloat162float(values[row * columns + column]);
    __nv_fp8_e4m3 code;
    code.__x = codes[row * columns + column];
    const int64_t blocks = (columns + kScaleBlock - 1) / kScaleBlock;
    return float(code) * scales[row / kScaleBlock * blocks + column / kScaleBlock];
  }
};

// The whole warp gets x . weight[row].
__device__ inline float plain_dot(const __nv_bfloat16* x, const PlainWeight& weight, int64_t row) {
  float sum = 0;
  for (int64_t i = threadIdx.x % 32; i < weight.columns; i += 32) {
    sum += __bfloat162float(x[i]) * weight.at(row, i);
  }
  return warp_sum(sum);
}

}  // namespace cachalot::cuda
