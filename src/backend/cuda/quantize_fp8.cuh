// The FP8 block quantizer in registers: what tensor/block_quantizers.h defines, with the
// conversions of the hardware (a NaN's sign is not kept). For .cu files.
#pragma once

#include <cstdint>

#include "base/number_formats.h"

namespace cachalot::cuda {

// Two E4M3 codes, the first in the low byte.
__device__ inline uint16_t to_e4m3_pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
__device__ inline uint32_t to_e4m3_quad(float a, float b, float c, float d) {
  return to_e4m3_pair(a, b) | static_cast<uint32_t>(to_e4m3_pair(c, d)) << 16;
}

// Both values of a pair of codes; exact, every E4M3 number is one of FP16.
__device__ inline float2 from_e4m3_pair(uint16_t codes) {
  uint32_t halves;
  float2 values;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}\n"
      : "=f"(values.x), "=f"(values.y)
      : "r"(halves));
  return values;
}

// E8M0 code of a group's scale: the smallest power of two >= largest * fp32(1/448).
__device__ inline uint32_t fp8_scale_of(float largest) {
  const uint32_t bits =
      __float_as_uint(__fmul_rn(fmaxf(largest, 1e-4f), __uint_as_float(kInverse448Bits)));
  return (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
}

// 2^(code - 127), for codes the quantizer makes: 105 .. 247, and 255 for infinite values, whose
// codes are NaN anyway.
__device__ inline float scale_value(uint32_t code) { return __uint_as_float(code << 23); }

// 1 / 2^(code - 127), exact for such codes; dividing by a power of two is multiplying by this.
// An infinite group gives NaN for each of its values, as dividing by the NaN scale does.
__device__ inline float inverse_scale(uint32_t code) {
  return code == 255 ? __uint_as_float(0x7FC00000u) : __uint_as_float((254 - code) << 23);
}

struct EightCodes {
  uint2 codes;
  uint32_t scale;  // E8M0, of the group
};

// Eight BF16 values of a group of 32, whose others the thread's three neighbours (lanes that differ
// in the lowest two bits) have. All threads of the warp call.
__device__ inline EightCodes quantize_eight(const uint4& packed) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
  float values[8], largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
    largest = fmaxf(largest, fmaxf(fabsf(values[2 * i]), fabsf(values[2 * i + 1])));
  }
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
  const uint32_t scale = fp8_scale_of(largest);
  const float inverse = inverse_scale(scale);
#pragma unroll
  for (float& value : values) value *= inverse;
  return {.codes = {to_e4m3_quad(values[0], values[1], values[2], values[3]),
                    to_e4m3_quad(values[4], values[5], values[6], values[7])},
          .scale = scale};
}

struct FourCodes {
  uint32_t codes, scale;
};

// The same of four values, whose group seven neighbours (that differ in the lowest three bits)
// have.
__device__ inline FourCodes quantize_four(const uint2& packed) {
  float values[4] = {__uint_as_float(packed.x << 16), __uint_as_float(packed.x & 0xFFFF0000u),
                     __uint_as_float(packed.y << 16), __uint_as_float(packed.y & 0xFFFF0000u)};
  float largest =
      fmaxf(fmaxf(fabsf(values[0]), fabsf(values[1])), fmaxf(fabsf(values[2]), fabsf(values[3])));
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
  const uint32_t scale = fp8_scale_of(largest);
  const float inverse = inverse_scale(scale);
#pragma unroll
  for (float& value : values) value *= inverse;
  return {to_e4m3_quad(values[0], values[1], values[2], values[3]), scale};
}

}  // namespace cachalot::cuda
