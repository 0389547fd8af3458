// Rows of BF16 in units of eight values, 16 bytes: the widest access of a thread; and sums over the
// threads of a block in one order. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "base/number_formats.h"

namespace cachalot::cuda {

inline constexpr int kUnit = 8;

// The two values of a word, exactly.
__device__ inline float low_value(uint32_t word) { return __uint_as_float(word << 16); }
__device__ inline float high_value(uint32_t word) { return __uint_as_float(word & 0xFFFF0000u); }

// Rounded to nearest even; NaN becomes a NaN.
__device__ inline uint32_t pack_values(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline float rounded_to_bf16(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

struct Unit {
  float value[kUnit];
};

__device__ inline Unit widen(uint4 words) {
  return {{low_value(words.x), high_value(words.x), low_value(words.y), high_value(words.y),
           low_value(words.z), high_value(words.z), low_value(words.w), high_value(words.w)}};
}
__device__ inline uint4 narrow(const Unit& unit) {
  const float* v = unit.value;
  return {pack_values(v[0], v[1]), pack_values(v[2], v[3]), pack_values(v[4], v[5]),
          pack_values(v[6], v[7])};
}

// Unit `index` of a row that starts on 16 bytes.
__device__ inline uint4 load_unit(const bf16* row, int64_t index) {
  return reinterpret_cast<const uint4*>(row)[index];
}
__device__ inline void store_unit(bf16* row, int64_t index, uint4 words) {
  reinterpret_cast<uint4*>(row)[index] = words;
}

// The sum over the warp, in all its lanes: a tree, the same in every lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

// The sums of kCount values over the block, in all its threads. Whole warps; `of_warp` is shared
// memory of kCount * 32 floats that nobody else uses until the next barrier after this.
template <int kCount>
__device__ inline void block_sums(float (&values)[kCount], float* of_warp) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (float& value : values) value = warp_sum(value);
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of_warp[i * 32 + warp] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    values[i] = warp_sum(lane < warps ? of_warp[i * 32 + lane] : 0.0f);
}

}  // namespace cachalot::cuda
