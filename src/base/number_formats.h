// The number formats of the released checkpoint, one value at a time: bf16, FP8 E4M3, FP4 E2M1,
// E8M0 scales, and the power-of-two scale of the block quantizers (spec: model, section 2).
//
// Everything rounds to nearest, ties to even. These are the definitions; kernels use faster forms
// that tests compare with them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace cachalot {

// A bfloat16 value as stored: the upper half of a float.
struct bf16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

inline float round_to_bf16(float value) { return to_float(to_bf16(value)); }

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE2m1Max = 6.0f;
// fp32(1/448) and fp32(1/6): the release multiplies by these, it does not divide.
inline constexpr uint32_t kInverse448Bits = 0x3b124925u;
inline constexpr uint32_t kInverse6Bits = 0x3e2aaaabu;

// E4M3 (finite only): 0x7F and 0xFF are NaN, subnormal step 2^-9.
inline float e4m3_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 0xF;
  const int mantissa = code & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((code & 0x7F) == 0x7F) magnitude = std::bit_cast<float>(0x7FC00000u);
  return (code & 0x80) ? -magnitude : magnitude;
}

// Saturates at +-448; keeps the sign of zero.
inline uint8_t float_to_e4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  float magnitude = std::fabs(value);
  if (!(magnitude < kE4m3Max)) return sign | (std::isnan(value) ? 0x7F : 0x7E);
  if (magnitude < 0x1p-6f) {  // subnormal: a multiple of 2^-9; 8 of them are the first normal code
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  // Round the 23-bit mantissa to 3 bits; a carry runs into the exponent as it should.
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0x7FFFFu + ((bits >> 20) & 1u);
  return sign | static_cast<uint8_t>((bits >> 20) - ((127 - 7) << 3));
}

// E2M1 code (sign in bit 3) -> value.
inline float e2m1_to_float(uint8_t code) {
  constexpr float kGrid[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return (code & 8) ? -kGrid[code & 7] : kGrid[code & 7];
}

// Saturates at +-6; ties go to the even code: 0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2,
// 3.5 -> 4, 5 -> 4.
inline uint8_t float_to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) +
                   (magnitude >= 1.75f) + (magnitude > 2.5f) + (magnitude >= 3.5f) +
                   (magnitude > 5.0f);
  return sign | static_cast<uint8_t>(code);
}

// 2^(code - 127); 0 is the denormal 2^-127, 255 is NaN.
inline float e8m0_to_float(uint8_t code) {
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  if (code == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(uint32_t{code} << 23);
}

// The smallest power of two >= value, for positive normal values, as an E8M0 code.
inline uint8_t pow2_ceil_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0));
}

// Scale codes of a group from its largest magnitude (spec: model, 2.2 and 2.3).
inline uint8_t fp8_scale_code(float largest) {
  return pow2_ceil_code(std::fmax(largest, 1e-4f) * std::bit_cast<float>(kInverse448Bits));
}
inline uint8_t fp4_scale_code(float largest) {
  return pow2_ceil_code(std::fmax(largest, 6 * 0x1p-126f) * std::bit_cast<float>(kInverse6Bits));
}
// The compressed latent's scale is itself an E4M3 value: a true division, then rounding.
inline uint8_t latent_scale_code(float largest) {
  return float_to_e4m3(std::fmax(largest, 6 * 0x1p-9f) / 6.0f);
}

}  // namespace cachalot
