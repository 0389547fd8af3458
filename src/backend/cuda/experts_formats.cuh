// What the experts' kernels do with single values: the block quantizers (tensor/block_quantizers.h)
// and the gated unit.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "backend/cuda/row_units.h"
#include "base/number_formats.h"
#include "tensor/matrix.h"

namespace cachalot::cuda {

__device__ inline float float_of(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

// Two BF16 values in a word, the first in the lower half.
__device__ inline uint32_t packed_bf16(float2 values) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(values.x, values.y);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// The exponent of a group's scale as E8M0 stores it: never under 2^-22, so that its inverse is a
// normal number too.
__device__ inline uint32_t fp8_scale_exponent(float largest) {
  const float scale = __fmul_rn(fmaxf(largest, 1e-4f), __uint_as_float(kInverse448Bits));
  const uint32_t bits = __float_as_uint(scale);
  return (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
}

// A group's values as FP8 keeps them. Scales are powers of two: multiplying by the inverse is the
// division of the definition.
struct Fp8Group {
  float scale, inverse;

  __device__ explicit Fp8Group(float largest) {
    const uint32_t exponent = fp8_scale_exponent(largest);
    scale = __uint_as_float(exponent << 23);
    inverse = __uint_as_float((254 - exponent) << 23);
  }
  __device__ float2 rounded(float a, float b) const {
    const __nv_fp8x2_storage_t codes =
        __nv_cvt_float2_to_fp8x2(make_float2(a * inverse, b * inverse), __NV_SATFINITE, __NV_E4M3);
    const __half2_raw values = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
    const float2 back = __half22float2(__half2(values));
    return make_float2(back.x * scale, back.y * scale);
  }
};

}  // namespace cachalot::cuda
