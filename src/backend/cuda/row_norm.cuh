// rms_norm over a row of BF16 in place, by 128 threads; the order of additions depends on the width
// alone. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

// The sum over 128 threads, in a fixed tree. `partial` is 4 floats in shared memory, `barrier` the
// number of one these threads have for themselves.
__device__ inline float sum_of_128(float sum, float* partial, int barrier) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x % 128 / 32] = sum;
  sync_threads_of(barrier, 128);
  sum = (partial[0] + partial[1]) + (partial[2] + partial[3]);
  sync_threads_of(barrier, 128);
  return sum;
}

// y = RNE_BF16(norm * (y / sqrt(mean(y^2) + eps))). Other threads may have written y: it is read
// past L1.
__device__ inline void normalize_row(__nv_bfloat16* y, const __nv_bfloat16* norm, int width,
                                     float eps, float* partial, int barrier) {
  // A value's place decides which thread adds it, and when: eight neighbours to a thread, then the
  // next 128 * 8. As many as this stay in registers for the second pass.
  constexpr int kKept = 5;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const bool packed = width % 8 == 0 && width <= kKept * 128 * 8 &&
                      reinterpret_cast<uintptr_t>(y) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(norm) % 16 == 0;
  float sum = 0;
  const auto add = [&](float value) { sum = __fmaf_rn(value, value, sum); };
  const auto low = [](uint32_t two) { return __uint_as_float(two << 16); };
  const auto high = [](uint32_t two) { return __uint_as_float(two & 0xFFFF0000u); };
  const auto root = [&] {
    const float total = sum_of_128(sum, partial, barrier);
    return __fsqrt_rn(__fdiv_rn(total, static_cast<float>(width)) + eps);
  };
  const auto normalized = [](float value, float weight, float divisor) {
    return weight * __fdiv_rn(value, divisor);
  };
  if (!packed) {
    for (int first = thread * 8; first < width; first += 128 * 8) {
      for (int i = first; i < min(first + 8, width); ++i) add(__bfloat162float(__ldcg(y + i)));
    }
    const float divisor = root();
    for (int first = thread * 8; first < width; first += 128 * 8) {
      for (int i = first; i < min(first + 8, width); ++i) {
        y[i] = __float2bfloat16_rn(
            normalized(__bfloat162float(__ldcg(y + i)), __bfloat162float(norm[i]), divisor));
      }
    }
    return;
  }
  uint4 values[kKept] = {}, weights[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int at = k * 128 + thread;
    if (at * 8 >= width) break;
    values[k] = __ldcg(reinterpret_cast<const uint4*>(y) + at);
    weights[k] = reinterpret_cast<const uint4*>(norm)[at];
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const uint32_t twos[4] = {values[k].x, values[k].y, values[k].z, values[k].w};
#pragma unroll
    for (const uint32_t two : twos) {
      add(low(two));
      add(high(two));
    }
  }
  const float divisor = root();
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int at = k * 128 + thread;
    if (at * 8 >= width) break;
    const uint32_t twos[4] = {values[k].x, values[k].y, values[k].z, values[k].w};
    const uint32_t scales[4] = {weights[k].x, weights[k].y, weights[k].z, weights[k].w};
    __nv_bfloat162 out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = __floats2bfloat162_rn(normalized(low(twos[i]), low(scales[i]), divisor),
                                     normalized(high(twos[i]), high(scales[i]), divisor));
    }
    reinterpret_cast<uint4*>(y)[at] = *reinterpret_cast<const uint4*>(out);
  }
}

}  // namespace cachalot::cuda
