// Attention among patches for heads of any width: one warp a query, all in FP32.
#pragma once

#include <cfloat>

#include "backend/cuda/image_attention.cuh"

namespace cachalot::cuda {

constexpr int kMaxChannels = 8;  // of a lane

// One warp a query: any head_dim up to 32 * kMaxChannels.
__global__ void attend_any(const ImageHeads of) {
  wait_for_inputs();
  const int64_t query = int64_t{blockIdx.x} * 4 + threadIdx.x / 32, head = blockIdx.y;
  if (query >= of.tokens) return;
  const int lane = threadIdx.x % 32;
  const int64_t width = of.heads * of.head_dim;
  const __nv_bfloat16* q = of.turned + query * 2 * width + head * of.head_dim;
  float out[kMaxChannels] = {};
  float top = -FLT_MAX, sum = 0;
  for (int64_t first = 0; first < of.tokens; first += 32) {
    const int64_t key = first + lane;
    float score = -FLT_MAX;
    if (key < of.tokens) {
      const __nv_bfloat16* k = of.turned + key * 2 * width + width + head * of.head_dim;
      score = 0;
      for (int64_t i = 0; i < of.head_dim; ++i) {
        score += __bfloat162float(q[i]) * __bfloat162float(k[i]);
      }
      score *= of.scale;
    }
    float largest = score;
    for (int distance = 16; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    const float new_top = fmaxf(top, largest), shrink = expf(top - new_top);
    const float p = key < of.tokens ? expf(score - new_top) : 0;
    top = new_top;
    sum = sum * shrink + p;
    for (float& channel : out) channel *= shrink;
    for (int i = 0; i < 32 && first + i < of.tokens; ++i) {
      const float share = __shfl_sync(~0u, p, i);
      const __nv_bfloat16* v = of.qkv + ((first + i) * 3 + 2) * width + head * of.head_dim;
#pragma unroll
      for (int c = 0; c < kMaxChannels; ++c) {
        if (lane + 32 * c < of.head_dim) out[c] += share * __bfloat162float(v[lane + 32 * c]);
      }
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
#pragma unroll
  for (int c = 0; c < kMaxChannels; ++c) {
    if (lane + 32 * c >= of.head_dim) continue;
    of.o[query * width + head * of.head_dim + lane + 32 * c] =
        __float2bfloat16_rn(__fdiv_rn(out[c], sum));
  }
}

}  // namespace cachalot::cuda
