// rms_norm over a row of BF16 in place, by one warp; the order of additions depends on the width
// alone. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace cachalot::cuda {

// norm * (value / root), rounded
__device__ inline __nv_bfloat16 normalized(__nv_bfloat16 value, __nv_bfloat16 norm, float root) {
  return __float2bfloat16_rn(__bfloat162float(norm) * __fdiv_rn(__bfloat162float(value), root));
}

// y = RNE_BF16(norm * (y / sqrt(mean(y^2) + eps))). Other threads may have written y: it is read
// past L1. A row whose width is a multiple of 8 begins at a multiple of 16 bytes.
__device__ inline void normalize_row(__nv_bfloat16* y, const __nv_bfloat16* norm, int width,
                                     float eps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int eights = width % 8 == 0 ? width / 8 : 0;
  auto* packed = reinterpret_cast<uint4*>(y);
  float sum = 0;
#pragma unroll 4
  for (int i = lane; i < eights; i += 32) {
    const uint4 eight = __ldcg(packed + i);
    for (const uint32_t two : {eight.x, eight.y, eight.z, eight.w}) {
      const float low = __uint_as_float(two << 16), high = __uint_as_float(two & 0xFFFF0000u);
      sum = __fmaf_rn(high, high, __fmaf_rn(low, low, sum));
    }
  }
  for (int i = eights * 8 + lane; i < width; i += 32) {
    const float value = __bfloat162float(__ldcg(y + i));
    sum = __fmaf_rn(value, value, sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float root = __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(width)) + eps);
#pragma unroll 4
  for (int i = lane; i < eights; i += 32) {
    uint4 eight = __ldcg(packed + i);
    auto* values = reinterpret_cast<__nv_bfloat16*>(&eight);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = normalized(values[j], norm[8 * i + j], root);
    packed[i] = eight;
  }
  for (int i = eights * 8 + lane; i < width; i += 32) {
    y[i] = normalized(__ldcg(y + i), norm[i], root);
  }
}

}  // namespace cachalot::cuda
