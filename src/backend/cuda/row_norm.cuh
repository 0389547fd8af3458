// The sum of squares of a row for rms_norm, in an order that depends on the width alone, whoever
// adds it: of 16 neighbours first g and g + 8, then neighbours at distances 1, 2 and 4, which are
// also those at which eight 16s are added to a tile of 128 columns; tiles i, i + 4, i + 8, ... in
// turn; the four sums at distances 1 and 2. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace cachalot::cuda {

// Of values g and g + 8: squares of BF16 numbers are exact.
__device__ inline float square_pair(float value, float eighth) {
  return __fmaf_rn(eighth, eighth, __fmul_rn(value, value));
}

// From the four sums of tiles, which lie `first` and `second` lanes apart. All of a warp call.
template <int first, int second>
__device__ inline float norm_divisor(float sum, int width, float eps) {
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, first));
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, second));
  return __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(width)), eps));
}

__device__ inline float normalized(float value, float weight, float divisor) {
  return __fmul_rn(weight, __fdiv_rn(value, divisor));
}

}  // namespace cachalot::cuda
