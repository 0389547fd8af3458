#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_queries.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kTurns = kTensorHeads / kWarps;

__device__ float weight_of(const QueryMaking& of, int64_t t, int32_t head) {
  return rounded_to_bf16(widened(of.weights[t * of.heads + head]) * of.weight_scale);
}

// Two E5M2 codes, the first in the low byte.
__device__ uint16_t to_e5m2_pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

// A block per row, a warp per head: a lane has pairs `lane` and `lane` + 32 of its channels, in
// groups lane / 16 and 2 + lane / 16.
__global__ void __launch_bounds__(kThreads)
    tensor_queries_kernel(QueryMaking of, TensorQueries to) {
  __shared__ __align__(16) uint8_t codes[kTensorQueryBytes];
  __shared__ TensorQueryScales scales;
  const int32_t lane = threadIdx.x % 32;
  const int64_t t = blockIdx.x;
  if (threadIdx.x == 0) scales.wide = 0;
  wait_for_inputs();
  let_next_start();
  const int32_t plain_pairs = kTensorWidth / 2 - of.pairs;
  // All that is read, before the first of it is waited for.
  uint32_t pairs[2 * kTurns];
  float weights[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kWarps;
    const auto* q =
        reinterpret_cast<const uint32_t*>(of.q + (t * kTensorHeads + head) * kTensorWidth);
    pairs[2 * turn] = q[lane];
    pairs[2 * turn + 1] = q[lane + 32];
    weights[turn] = weight_of(of, t, head);
  }
  float2 rotations[2];
  for (int i = 0; i < 2; ++i) {
    const int32_t pair = lane + 32 * i;
    if (pair >= plain_pairs) {
      rotations[i] = rotation_at(of.rows.positions[t], of.frequencies[pair - plain_pairs]);
    }
  }
  __syncthreads();
  uint32_t own[2 * kTurns];  // a byte of two codes
  int32_t rest[2 * kTurns];  // its group's scale over the head's largest, log2
  bool wide = false;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kWarps;
    int32_t exponents[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t pair = lane + 32 * i;
      const uint32_t two = pairs[2 * turn + i];
      float2 value{__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u)};
      if (pair >= plain_pairs) value = rotated(value, rotations[i]);
      const float largest = largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y)));
      const uint32_t scale = index_scale_code(largest);
      const float factor = e8m0_inverse(scale);
      own[2 * turn + i] = e2m1_pair(value.x * factor, value.y * factor);
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
  wide = __syncthreads_or(wide);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int head = static_cast<int>(threadIdx.x) / 32 + turn * kWarps;
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
      const uint32_t both = to_e5m2_pair(e2m1_value(own[2 * turn + i] & 15) * scale,
                                         e2m1_value(own[2 * turn + i] >> 4) * scale);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int piece = (2 * group + odd) ^ (column % 8);
        codes[column * kTensorWidth + piece * 16 + pair % 16] =
            static_cast<uint8_t>(both >> (8 * odd));
      }
    }
  }
  if (threadIdx.x == 0) scales.wide = wide;
  __syncthreads();
  reinterpret_cast<uint2*>(to.codes + t * kTensorQueryBytes)[threadIdx.x] =
      reinterpret_cast<const uint2*>(codes)[threadIdx.x];
  static_assert(kTensorQueryBytes == 8 * kThreads);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(TensorQueryScales) / 4); i += kThreads) {
    reinterpret_cast<uint32_t*>(to.scales + t)[i] = reinterpret_cast<const uint32_t*>(&scales)[i];
  }
}

// A block per row, a warp per head.
__global__ void __launch_bounds__(kThreads) plain_queries_kernel(QueryMaking of, PlainQueries to) {
  wait_for_inputs();
  let_next_start();
  const int32_t lane = threadIdx.x % 32, pairs = of.width / 2, plain_pairs = pairs - of.pairs;
  const int64_t t = blockIdx.x;
  for (int32_t head = threadIdx.x / 32; head < of.heads; head += kWarps) {
    const bf16* q = of.q + (t * of.heads + head) * of.width;
    uint8_t* packed = to.packed + (t * of.heads + head) * index_key_row_bytes(of.width);
    for (int32_t pair = lane; pair - lane < pairs; pair += 32) {
      const bool inside = pair < pairs;
      float2 value{0, 0};
      if (inside) value = {widened(q[2 * pair]), widened(q[2 * pair + 1])};
      if (inside && pair >= plain_pairs) {
        value =
            rotated(value, rotation_at(of.rows.positions[t], of.frequencies[pair - plain_pairs]));
      }
      const uint32_t scale =
          index_scale_code(largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y))));
      if (inside) {
        const float factor = e8m0_inverse(scale);
        packed[pair] = e2m1_pair(value.x * factor, value.y * factor);
        if (pair % 16 == 0) packed[pairs + pair / 16] = static_cast<uint8_t>(scale);
      }
    }
    if (lane == 0) to.weights[t * of.heads + head] = weight_of(of, t, head);
  }
}

}  // namespace

void make_tensor_queries(Queue& queue, const QueryMaking& of, const TensorQueries& to) {
  launch(queue, "index_select", tensor_queries_kernel,
         {.blocks = static_cast<unsigned>(of.rows.tokens), .threads = kThreads}, of, to);
}

void make_plain_queries(Queue& queue, const QueryMaking& of, const PlainQueries& to) {
  launch(queue, "index_select", plain_queries_kernel,
         {.blocks = static_cast<unsigned>(of.rows.tokens), .threads = kThreads}, of, to);
}

}  // namespace cachalot::cuda
