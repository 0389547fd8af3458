// Rotary embedding on the device (spec: model, 4.1). For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cachalot::cuda {

// Cosine and sine of float(position) * frequency. The angle is rounded to FP32 as the contract
// says; it reaches 2^20 radians, where sincosf's own reduction would still do, but a double costs
// little for the 32 angles of a token and rounds to the reference's value.
__device__ inline float2 turn_at(int32_t position, float frequency) {
  const float angle = __fmul_rn(static_cast<float>(position), frequency);
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  return {static_cast<float>(cosine), static_cast<float>(sine)};
}

// The pair (a, b) turned by (cosine, sine), unrounded. The inverse turn takes -sine.
__device__ inline float2 rotate_pair(float a, float b, float cosine, float sine) {
  return {__fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)),
          __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine))};
}

}  // namespace cachalot::cuda
