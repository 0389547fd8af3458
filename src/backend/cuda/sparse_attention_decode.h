// Packed rows of the caches to BF16 values times 2^-7 (2^-7: the largest scale of a latent, 448,
// times the 2^126 that its codes need would not fit BF16).
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

// 8 codes of E2M1, channel 0 in the lowest bits, times multiplier * 2^126.
__device__ inline uint4 decode_e2m1(uint32_t codes, uint32_t multiplier) {
  // Of channels i and i + 4: three bits to 8 .. 6 of each half, the sign to bit 15.
  const auto two = [&](uint32_t magnitude, uint32_t sign) {
    return multiply_bf16s((magnitude & 0x01C001C0u) | (sign & 0x80008000u), multiplier);
  };
  return {two(codes << 6, codes << 12), two(codes << 2, codes << 8), two(codes >> 2, codes << 4),
          two(codes >> 6, codes)};
}

// 8 codes of E4M3 times scale * 2^-7.
__device__ inline uint4 decode_e4m3(uint32_t low, uint32_t high, uint32_t scale) {
  const auto two = [&](uint32_t picked) {
    const uint32_t bits = (picked >> 4 & 0x07F007F0u) | (picked & 0x80008000u);
    return multiply_bf16s(multiply_bf16s(bits, two_powers(113)), scale);
  };
  // Channels i and i + 4 in the upper byte of each half.
  return {two(__byte_perm(low, high, 0x4000)), two(__byte_perm(low, high, 0x5010)),
          two(__byte_perm(low, high, 0x6020)), two(__byte_perm(low, high, 0x7030))};
}

// 32 channels of a latent: store(i, channels 8 i .. 8 i + 7 in the order of interleaved()).
template <class Store>
__device__ __forceinline__ void decode_latent(uint4 codes, uint32_t scales, Store&& store) {
  // Two E4M3 scales, as bits the value times 2^-120, times 2^239 in two steps.
  uint32_t both = (scales & 0xFFu) << 4 | (scales & 0xFF00u) << 12;
  both = multiply_bf16s(multiply_bf16s(both, two_powers(120)), two_powers(119));
  const uint32_t lower = __byte_perm(both, both, 0x1010);
  const uint32_t upper = __byte_perm(both, both, 0x3232);
  store(0, decode_e2m1(codes.x, lower));
  store(1, decode_e2m1(codes.y, lower));
  store(2, decode_e2m1(codes.z, upper));
  store(3, decode_e2m1(codes.w, upper));
}

// 32 channels of a window row.
template <class Store>
__device__ __forceinline__ void decode_window(uint4 low, uint4 high, uint32_t scale_code,
                                              Store&& store) {
  // E8M0 is BF16's exponent.
  const uint32_t scale = scale_code << 7 | scale_code << 23;
  store(0, decode_e4m3(low.x, low.y, scale));
  store(1, decode_e4m3(low.z, low.w, scale));
  store(2, decode_e4m3(high.x, high.y, scale));
  store(3, decode_e4m3(high.z, high.w, scale));
}

}  // namespace cachalot::cuda
