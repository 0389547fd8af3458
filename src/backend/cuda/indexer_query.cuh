// A row's query for the tensor cores, made in shared memory by 16 warps. For .cu files.
#pragma once

#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_queries.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/any_of_threads.h"

namespace cachalot::cuda {

constexpr int kQueryWarps = 16, kQueryThreads = 32 * kQueryWarps;
constexpr int kQueryTurns = kTensorHeads / kQueryWarps;

// Two E5M2 codes, the first in the low byte.
__device__ inline uint16_t to_e5m2_pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

// The E2M1 number next to |value| <= 6, of two the even one: a multiple of 1/2, 1 or 2.
__device__ inline float to_e2m1(float value) {
  const float magnitude = fabsf(value);
  const float unit = magnitude < 2 ? 0x1p22f : magnitude < 4 ? 0x1p23f : 0x1p24f;
  return copysignf(__fsub_rn(__fadd_rn(magnitude, unit), unit), value);
}

// How the pairs of a row's channels are turned, one a thread of a warp's 32 and 32 more. Before
// wait_for_inputs(): no kernel writes positions.
struct QueryTurns {
  float2 of_pair[kTensorWidth / 2];
};
__device__ inline void find_turns(const QueryMaking& of, int64_t t, QueryTurns& turns) {
  const int32_t plain_pairs = kTensorWidth / 2 - of.pairs;
#pragma unroll
  for (int pair = threadIdx.x % 32; pair < kTensorWidth / 2; pair += 32) {
    if (pair < plain_pairs) continue;
    turns.of_pair[pair] = rotation_at(of.rows.positions[t], of.frequencies[pair - plain_pairs]);
  }
}

// By kQueryThreads threads, the first of the block, whose barrier is number 1; they have waited for
// the kernel's inputs. A warp takes a head at a time: a lane has pairs `lane` and `lane` + 32 of
// its channels, in groups lane / 16 and 2 + lane / 16. Whoever reads what was made waits for the
// threads. Returns whether the row is `wide`.
__device__ inline bool make_query(const QueryMaking& of, int64_t t, const QueryTurns& turns,
                                  uint8_t* codes, TensorQueryScales& scales) {
  const int32_t lane = threadIdx.x % 32;
  const int32_t plain_pairs = kTensorWidth / 2 - of.pairs;
  // All that is read, before the first of it is waited for.
  uint32_t pairs[2 * kQueryTurns];
  float weights[kQueryTurns];
#pragma unroll
  for (int turn = 0; turn < kQueryTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kQueryWarps;
    const auto* q =
        reinterpret_cast<const uint32_t*>(of.q + (t * kTensorHeads + head) * kTensorWidth);
    pairs[2 * turn] = q[lane];
    pairs[2 * turn + 1] = q[lane + 32];
    weights[turn] = of.weight(t, head);
  }
  const float2 own_turns[2] = {turns.of_pair[lane], turns.of_pair[lane + 32]};
  float2 own[2 * kQueryTurns];    // E2M1 numbers
  int32_t rest[2 * kQueryTurns];  // its group's scale over the head's largest, log2
  bool wide = false;
#pragma unroll
  for (int turn = 0; turn < kQueryTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kQueryWarps;
    int32_t exponents[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t pair = lane + 32 * i;
      const uint32_t two = pairs[2 * turn + i];
      float2 value{__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u)};
      if (pair >= plain_pairs) value = rotated(value, own_turns[i]);
      const float largest = largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y)));
      const uint32_t scale = index_scale_code(largest);
      const float factor = e8m0_inverse(scale);
      own[2 * turn + i] = {to_e2m1(value.x * factor), to_e2m1(value.y * factor)};
      // A group of zeros needs no room beside the others.
      exponents[i] = largest > 0 ? static_cast<int32_t>(scale) : 0;
    }
    int32_t most = max(exponents[0], exponents[1]);
    most = max(most, __shfl_xor_sync(~0u, most, 16));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rest[2 * turn + i] = exponents[i] == 0 ? 0 : exponents[i] - most;
      wide |= rest[2 * turn + i] < -kQueryRoom;
    }
    if (lane == 0) scales.weight[head] = weights[turn] * e8m0_value(most) * (1 << kScoreShift);
  }
  wide = any_of_threads(1, kQueryThreads, wide);
#pragma unroll
  for (int turn = 0; turn < kQueryTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kQueryWarps;
    const int column = tensor_column(head);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t pair = lane + 32 * i, group = pair / 16;
      // Scales are in the codes or here: a block multiplies by these if any of its rows is wide.
      if (lane % 16 == 0) {
        scales.scale[group][head] = wide ? ldexpf(1, rest[2 * turn + i]) : 1.0f;
      }
      // Times 2^-15 .. 2^2: exact in E5M2.
      const int32_t exponent = 2 - (group == 0 ? kKeyRoom : 0) + (wide ? 0 : rest[2 * turn + i]);
      const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
      const uint32_t both = to_e5m2_pair(own[2 * turn + i].x * scale, own[2 * turn + i].y * scale);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int piece = (2 * group + odd) ^ (column % 8);
        codes[column * kTensorWidth + piece * 16 + pair % 16] =
            static_cast<uint8_t>(both >> (8 * odd));
      }
    }
  }
  if (threadIdx.x == 0) scales.wide = wide;
  return wide;
}

}  // namespace cachalot::cuda
