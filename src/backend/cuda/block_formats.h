// base/number_formats.h and tensor/block_quantizers.h for .cu files: bf16, the E2M1 groups of
// latents and index keys, the rotary embedding. The same bits as on the host.
#pragma once

#include <cstdint>

#include "backend/cuda/row_units.h"
#include "base/number_formats.h"

namespace cachalot::cuda {

__device__ inline float widened(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds a finite number to nearest, ties to even.
__device__ inline bf16 narrowed(float value) {
  const uint32_t bits = __float_as_uint(value);
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

__device__ inline uint32_t e2m1_code(float value) {
  const float magnitude = fabsf(value);
  const uint32_t sign = __float_as_uint(value) >> 31 << 3;
  return sign |
         ((magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
          (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f));
}
// Two channels as they are packed: the even one in the low nibble.
__device__ inline uint8_t e2m1_pair(float even, float odd) {
  return static_cast<uint8_t>(e2m1_code(even) | e2m1_code(odd) << 4);
}
__device__ inline float e2m1_value(uint32_t code) {
  // Exponent and mantissa at the top of a bf16's mantissa and below: 2^-126 of the value, the
  // smallest of them a denormal as it should be.
  const uint32_t bits = (code & 8u) << 28 | (code & 7u) << 22;
  return __uint_as_float(bits) * 0x1p126f;
}

__device__ inline float e8m0_value(uint32_t code) {
  if (code == 255) return __uint_as_float(0x7FC00000u);
  return __uint_as_float(max(code << 23, 0x00400000u));
}
// 1 / e8m0_value(code), exact: dividing by a power of two is multiplying by this. Codes of
// index_scale_code() alone.
__device__ inline float e8m0_inverse(uint32_t code) {
  return __uint_as_float(max((254 - code) << 23, 0x00400000u));
}
// The scale code of a group of index keys from its largest magnitude.
__device__ inline uint32_t index_scale_code(float largest) {
  const uint32_t bits =
      __float_as_uint(fmaxf(largest, 6 * 0x1p-126f) * __uint_as_float(kInverse6Bits));
  return (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
}
// The E4M3 scale code of a group of latents; `largest` is positive or zero.
__device__ inline uint32_t latent_scale_code(float largest) {
  const float scale = __fdiv_rn(fmaxf(largest, 6 * 0x1p-9f), 6.0f);
  if (!(scale < kE4m3Max)) return 0x7E;
  if (scale < 0x1p-6f) return static_cast<uint32_t>(rintf(scale * 0x1p9f));
  uint32_t bits = __float_as_uint(scale);
  bits += 0x7FFFFu + ((bits >> 20) & 1u);
  return (bits >> 20) - ((127 - 7) << 3);
}
// A positive E4M3 code that is a number.
__device__ inline float e4m3_scale_value(uint32_t code) {
  if (code < 8) return static_cast<float>(code) * 0x1p-9f;
  return __uint_as_float((code << 20) + ((127 - 7) << 23));
}

// The angle is the FP32 product, up to a million radians and exact as such: it is reduced to half
// turns in double, 2^-34 of a turn at worst, before FP32 takes over.
__device__ inline float2 rotation_at(int64_t position, float frequency) {
  const float angle = static_cast<float>(position) * frequency;
  const double turns = static_cast<double>(angle) * 0.15915494309189535;  // 1 / (2 pi)
  float sine, cosine;
  sincospif(static_cast<float>(2 * (turns - rint(turns))), &sine, &cosine);
  return {cosine, sine};
}
// Channels 2i and 2i + 1, rounded to BF16.
__device__ inline float2 rotated(float2 pair, float2 rotation) {
  return {rounded_to_bf16(pair.x * rotation.x - pair.y * rotation.y),
          rounded_to_bf16(pair.x * rotation.y + pair.y * rotation.x)};
}

// The largest of `lanes` neighbouring lanes (a power of two); the whole warp calls.
template <int lanes>
__device__ inline float largest_of_lanes(float value) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

// The sum over a block of `threads` (a multiple of 32, at most 1024), the same tree whatever the
// data; `partials` holds 32 floats of shared memory. All threads call, and get it.
__device__ inline float sum_of_block(float value, float* partials) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  const int warps = static_cast<int>(blockDim.x) / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = value;
  __syncthreads();
  value = static_cast<int>(threadIdx.x % 32) < warps ? partials[threadIdx.x % 32] : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

}  // namespace cachalot::cuda
