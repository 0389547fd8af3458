// Packed rows of the caches to the fragments that products take from registers: BF16 values times
// 2^-56.
//
// A code's bits are moved to where BF16 keeps sign, lowest exponent bits and highest mantissa bits;
// subnormal codes become subnormal numbers, so one multiplication by the scale and a power of two
// makes the value: E2M1 as bits is its value times 2^-126, E4M3 times 2^-120. BF16 products keep
// subnormals. All products are exact: 2 and 4 significant bits, 8 fit.
//
// 2^-56: the multipliers, a latent's scale (to 448) times 2^70 and a window row's times 2^64, must
// be BF16 numbers, and values, of 2^-31 and more, and their sums far above FP32's smallest. So
// scales of window rows count up to 2^63, where a channel would be above 10^21.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cachalot::cuda {

inline constexpr int kValueExponent = 56;
inline constexpr float kValueScaleInverse = float(uint64_t{1} << kValueExponent);

// 2^exponent twice.
__host__ __device__ constexpr uint32_t two_powers(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 7 | static_cast<uint32_t>(exponent + 127) << 23;
}

__device__ inline uint32_t multiply_bf16s(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// a * b where the compiler would shift.
__device__ inline uint32_t multiplied(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// Eight BF16 channels into the order 0 4 1 5 2 6 3 7.
__device__ inline uint4 interleaved(uint4 x) {
  return {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
          __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632)};
}

// Logic and shifts share one pipe, multiplications of integers and of BF16 another, each one in 2.2
// cycles of a scheduler, and one in 5 beside products on the tensor cores. So what shifts can be is
// a multiplication.

// E2M1 codes in the lower or the upper half of both halves' low byte, times multiplier * 2^126: one
// multiplication shifts sign and rest both ways.
template <int half>
__device__ inline uint32_t decode_e2m1(uint32_t codes, uint32_t multiplier) {
  const uint32_t picked = codes & (half == 0 ? 0x000F000Fu : 0x00F000F0u);
  return multiply_bf16s(picked * (half == 0 ? 0x1040u : 0x0104u) & 0x81C081C0u, multiplier);
}

// E4M3 codes in both bytes of both halves, times multiplier * 2^120.
__device__ inline uint32_t decode_e4m3(uint32_t codes, uint32_t multiplier) {
  return multiply_bf16s((multiplied(codes, 16) & 0x07F007F0u) | (codes & 0x80008000u), multiplier);
}

// The same of codes in the lower (0) or upper (1) byte of both halves, beside others.
template <int byte>
__device__ inline uint32_t decode_e4m3_of(uint32_t codes, uint32_t multiplier) {
  const uint32_t rest = byte == 0 ? multiplied(codes, 16) : codes >> 4;
  const uint32_t signs = byte == 0 ? codes << 8 : codes;
  return multiply_bf16s((rest & 0x07F007F0u) | (signs & 0x80008000u), multiplier);
}

// What decode_e2m1 takes for two E4M3 scales of latents, one in each half: as bits, moved up by 4,
// a scale is 2^-120 of its value.
__device__ inline uint32_t latent_multiplier(uint32_t scales) {
  constexpr int kExponent = 120 + 126 - kValueExponent;
  return multiply_bf16s(multiply_bf16s(scales * 16, two_powers(120)), two_powers(kExponent - 120));
}

// What decode_e4m3 takes for two E8M0 scales of window rows, one in each half: E8M0 is BF16's
// exponent.
__device__ inline uint32_t window_multiplier(uint32_t scales) {
  constexpr uint32_t kOffset = 120 - kValueExponent, kMost = 254;
  return (__vminu2(scales, (kMost - kOffset) * 0x10001u) + kOffset * 0x10001u) * 128;
}

// Byte `byte` of a in both bytes of the lower half, of b in those of the upper half.
__device__ inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t byte) {
  return __byte_perm(a, b, byte * 0x1111 + 0x4400);
}

}  // namespace cachalot::cuda
