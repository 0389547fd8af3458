// A step's window rows: the key of each token turned by its position and rounded to FP8. For .cu
// files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {

struct WindowRows {
  const int32_t* positions;
  const float* frequencies;
  int pairs, head_dim;
  const __nv_bfloat16* kv;
  uint8_t* rows;
  int row_bytes;

  // Of a channel among those that turn; negative: it does not.
  __device__ int turned_channel(int channel) const { return channel - (head_dim - 2 * pairs); }
};

// A warp makes 32 channels of the window row, a lane each. `turn`: of the lane's channel, if it
// turns.
__device__ inline void quantize_group(const WindowRows& of, int64_t token, int group, float value,
                                      float2 turn) {
  const int lane = threadIdx.x % 32, channel = group * 32 + lane;
  const float other = __shfl_xor_sync(~0u, value, 1);
  if (of.turned_channel(channel) >= 0) {
    const bool second = lane % 2 != 0;
    const float2 pair = second ? rotate_pair(other, value, turn.x, turn.y)
                               : rotate_pair(value, other, turn.x, turn.y);
    value = rounded_to_bf16(second ? pair.y : pair.x);
  }
  float largest = fabsf(value);
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  // The smallest power of two >= largest / 448 (number_formats.h): at least 2^-22, so that its
  // inverse is exact and multiplying by it is the division.
  const uint32_t bits = __float_as_uint(__fmul_rn(fmaxf(largest, 1e-4f), 0x1.24924ap-9f));
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
  const float inverse = __uint_as_float((254 - code) << 23);
  uint8_t* row = of.rows + token * of.row_bytes;
  row[channel] = __nv_cvt_float_to_fp8(value * inverse, __NV_SATFINITE, __NV_E4M3);
  if (lane == 0) row[of.head_dim + group] = static_cast<uint8_t>(code);
}

// By a block of kThreads threads, which has not waited for its inputs.
template <int kThreads>
__device__ void make_window_row(const WindowRows& of, int64_t token) {
  static_assert(kThreads % 32 == 0);
  const int lane = threadIdx.x % 32, groups = of.head_dim / 32;
  const auto turn_of = [&](int group) {
    const int turned = of.turned_channel(group * 32 + lane);
    return turned >= 0 ? turn_at(of.positions[token], of.frequencies[turned / 2]) : float2{};
  };
  const auto value_of = [&](int group) {
    return __bfloat162float(of.kv[token * of.head_dim + group * 32 + lane]);
  };
  // Of the groups a warp has in the released model, all is on its way before the first is used.
  constexpr int kWarps = kThreads / 32, kGroups = 2;
  const int warp = threadIdx.x / 32;
  float2 turns[kGroups] = {};
  float values[kGroups] = {};
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (warp + i * kWarps < groups) turns[i] = turn_of(warp + i * kWarps);
  }
  wait_for_inputs();
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    if (warp + i * kWarps < groups) values[i] = value_of(warp + i * kWarps);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = warp + i * kWarps;
    if (group < groups) quantize_group(of, token, group, values[i], turns[i]);
  }
  for (int group = warp + kGroups * kWarps; group < groups; group += kWarps) {
    quantize_group(of, token, group, value_of(group), turn_of(group));
  }
}

}  // namespace cachalot::cuda
