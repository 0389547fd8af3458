// The order in which the collapse of the released stream adds, the same for every number of
// tokens: whoever computes a part of it computes it so. For .cu files.
//
// The 5120 dimensions are cut into 8 slices, a slice into 20 chunks of 32. Of the product with a
// row of fn, 16 parts per slice are chains of 160 additions: part p takes the copy p / 4, and of
// every chunk in turn the 8 dimensions from p % 4 * 8 on. Parts, then slices are added by trees.
// The squares: by eighths, which take every chunk's dimensions from e * 4 on; a chunk's four
// dimensions (and copies) in a chain, the 20 chunks in a chain, eighths and slices by trees.
#pragma once

#include "backend/cuda/row_units.h"

namespace cachalot::cuda::collapse_order {

constexpr int kDim = 5120, kCopies = 4, kMixes = 24;
constexpr int kSlices = 8, kSlice = kDim / kSlices;
constexpr int kChunk = 32, kChunks = kSlice / kChunk;
constexpr int kParts = 16, kEighths = kChunk / 4;

__device__ inline float sum_of_8(const float (&value)[8]) {
  return ((value[0] + value[4]) + (value[2] + value[6])) +
         ((value[1] + value[5]) + (value[3] + value[7]));
}
// Of values `stride` apart.
__device__ inline float sum_of_8(const float* first, int stride) {
  float value[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) value[i] = first[i * stride];
  return sum_of_8(value);
}
// Over 8 neighboring lanes, in all of them.
__device__ inline float sum_of_8_lanes(float value) {
#pragma unroll
  for (int distance = 4; distance > 0; distance /= 2)
    value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

// An eighth of a chunk: x before its norm, and the squares of stream (x) and x (y).
struct Eighth {
  uint2 x;
  float2 squares;
};
__device__ inline Eighth collapse_eighth(const uint2 (&words)[kCopies], float4 pre) {
  const float share[kCopies] = {pre.x, pre.y, pre.z, pre.w};
  float sum[4] = {};
  Eighth out{};
#pragma unroll
  for (int copy = 0; copy < kCopies; ++copy) {
    const float value[4] = {low_value(words[copy].x), high_value(words[copy].x),
                            low_value(words[copy].y), high_value(words[copy].y)};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sum[e] = fmaf(share[copy], value[e], sum[e]);
      out.squares.x = fmaf(value[e], value[e], out.squares.x);
    }
  }
  out.x = {pack_values(sum[0], sum[1]), pack_values(sum[2], sum[3])};
  const float x[4] = {low_value(out.x.x), high_value(out.x.x), low_value(out.x.y),
                      high_value(out.x.y)};
#pragma unroll
  for (int e = 0; e < 4; ++e) out.squares.y = fmaf(x[e], x[e], out.squares.y);
  return out;
}

// From the sum of squares of x. Once per token: x is then multiplied, not divided.
__device__ inline float inverse_root(float square, float eps) {
  return 1 / sqrtf(square / kDim + eps);
}
__device__ inline uint4 normed(uint4 x, uint4 norm_words, float inverse_root) {
  Unit value = widen(x);
  const Unit norm = widen(norm_words);
#pragma unroll
  for (int e = 0; e < kUnit; ++e) value.value[e] = norm.value[e] * (value.value[e] * inverse_root);
  return narrow(value);
}

}  // namespace cachalot::cuda::collapse_order
