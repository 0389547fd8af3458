// From sums to hidden values, two at a time: neighbouring columns of a product, or inputs of the
// next one. Single values would be rounded by the unit that also computes exponentials, at an
// eighth of the rate.
#pragma once

#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/moe_experts_weights.cuh"

namespace cachalot::cuda {

__device__ inline float2 unpacked_bf16(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}

// weight * silu(gate) * up between its roundings. The approximate exponential and division are off
// by a few units of FP32; what follows rounds to BF16's 8 bits and then to E4M3's 4.
__device__ inline float gated(float g, float u, float weight, float limit) {
  if (limit > 0) {
    g = fminf(g, limit);
    u = fminf(fmaxf(u, -limit), limit);
  }
  // Where e^-g leaves FP32's range the quotient is 0, as it should be to 2^-120.
  const float sigmoid = __fdividef(1.0f, 1.0f + __expf(-g));
  return weight * (g * sigmoid * u);
}
__device__ inline uint32_t gated(float2 gate, float2 up, float2 weight, float limit) {
  const float2 g = unpacked_bf16(packed_bf16({gate.x * kWeightShift, gate.y * kWeightShift}));
  const float2 u = unpacked_bf16(packed_bf16({up.x * kWeightShift, up.y * kWeightShift}));
  return packed_bf16({gated(g.x, u.x, weight.x, limit), gated(g.y, u.y, weight.y, limit)});
}

// BF16 pairs: the larger of each half, and absolute values.
__device__ inline uint32_t larger(uint32_t a, uint32_t b) {
  const __nv_bfloat162 out = __hmax2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                     *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&out);
}
__device__ inline uint32_t absolute(uint32_t pair) { return pair & 0x7FFF7FFFu; }

// A pair as FP8 keeps it, in groups of these scales.
__device__ inline uint32_t rounded_pair(uint32_t pair, const Fp8Group& first,
                                        const Fp8Group& second) {
  const float2 values = unpacked_bf16(pair);
  const __nv_fp8x2_storage_t codes = __nv_cvt_float2_to_fp8x2(
      make_float2(values.x * first.inverse, values.y * second.inverse), __NV_SATFINITE, __NV_E4M3);
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  const float2 back = __half22float2(__half2(halves));
  return packed_bf16({back.x * first.scale, back.y * second.scale});
}

}  // namespace cachalot::cuda
