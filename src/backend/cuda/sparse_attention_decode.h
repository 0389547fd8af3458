// Packed rows of the caches to the fragments that products take from registers: BF16 values times
// 2^-7 (2^-7: the largest scale of a latent, 448, times the 2^126 that its codes need would not fit
// BF16).
//
// A code's bits are moved to where BF16 keeps sign, lowest exponent bits and highest mantissa bits;
// subnormal codes become subnormal numbers, so one multiplication by a power of two (and the scale)
// makes the value: E2M1 as bits is its value times 2^-126, E4M3 times 2^-120. BF16 products keep
// subnormals. All products are exact: 2 and 4 significant bits, 8 fit.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cachalot::cuda {

inline constexpr float kPanelScaleInverse = 128;

// 2^exponent twice.
__host__ __device__ constexpr uint32_t two_powers(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 7 | static_cast<uint32_t>(exponent + 127) << 23;
}

__device__ inline uint32_t multiply_bf16s(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Eight BF16 channels into the order 0 4 1 5 2 6 3 7.
__device__ inline uint4 interleaved(uint4 x) {
  return {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
          __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632)};
}

// E2M1 codes in nibble `which` (0 .. 3) of both halves, times multiplier * 2^126. Beside products
// on the tensor cores, multiplications of integers and of BF16 are slow - one in 4 cycles of a
// scheduler - and logic and shifts, one in 2.5, are not: one multiplication shifts sign and rest of
// the lower nibbles both ways, shifts move those of the upper ones.
template <int which>
__device__ inline uint32_t decode_e2m1(uint32_t codes, uint32_t multiplier) {
  uint32_t bits;
  if constexpr (which < 2) {
    const uint32_t picked = codes & (which == 0 ? 0x000F000Fu : 0x00F000F0u);
    bits = picked * (which == 0 ? 0x1040u : 0x0104u) & 0x81C081C0u;
  } else if constexpr (which == 2) {
    bits = (codes >> 2 & 0x01C001C0u) | (codes << 4 & 0x80008000u);
  } else {
    bits = (codes >> 6 & 0x01C001C0u) | (codes & 0x80008000u);
  }
  return multiply_bf16s(bits, multiplier);
}

// E4M3 codes in the upper byte of both halves, times scale * 2^-7.
__device__ inline uint32_t decode_e4m3(uint32_t codes, uint32_t scale) {
  const uint32_t bits = (codes >> 4 & 0x07F007F0u) | (codes & 0x80008000u);
  return multiply_bf16s(multiply_bf16s(bits, two_powers(113)), scale);
}

// What decode_e2m1 takes for two E4M3 scales of latents, one in each half: as bits, moved up by 4,
// a scale is 2^-120 of its value, and 2^119 of it is wanted.
__device__ inline uint32_t latent_multiplier(uint32_t scales) {
  return multiply_bf16s(multiply_bf16s(scales * 16, two_powers(120)), two_powers(119));
}

// The scales of window rows, one in each half: E8M0 is BF16's exponent.
__device__ inline uint32_t window_multiplier(uint32_t scales) { return scales * 128; }

// Byte `byte` of a in both bytes of the lower half, of b in those of the upper half.
__device__ inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t byte) {
  return __byte_perm(a, b, byte * 0x1111 + 0x4400);
}

}  // namespace cachalot::cuda
