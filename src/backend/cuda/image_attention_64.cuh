// Attention among patches for heads of 64 channels, on tensor cores.
//
// A block takes 128 queries of one head, 64 a warpgroup; a warp of its own brings keys and values
// in tiles of 128. While the softmax of one tile runs, the products of another do: scores of tile j
// are started together with the values of tile j - 1.
//
// Probabilities stay unrounded as far as FP32 would see: each is the sum of two BF16 numbers, what
// is left of it behind the first 2^-17 of it at most, and both are multiplied with the values.
// exp2 with the scale folded into its argument is off by 2 units in the last place and by the
// rounding of an argument x, |x| * 2^-24: below 2^-18 of every probability above 2^-40.
#pragma once

#include <math_constants.h>

#include "backend/cuda/image_attention.cuh"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"

namespace cachalot::cuda {

constexpr int kImageHead = 64;
constexpr int kImageQueries = 64;  // of a warpgroup
constexpr int kImageGroups = 2;    // of warps
constexpr int kImageKeys = 128;    // of a tile
constexpr int kImageStages = 3;
constexpr int kImageRow = 128;  // bytes of a head's channels

struct ImageShared {
  alignas(1024) uint8_t queries[kImageGroups][kImageQueries * kImageRow];
  alignas(1024) uint8_t keys[kImageStages][kImageKeys * kImageRow];
  alignas(1024) uint8_t values[kImageStages][kImageKeys * kImageRow];
  Barrier queries_full, keys_full[kImageStages], values_full[kImageStages], empty[kImageStages];
};

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a thread keeps of its two rows (of the products' rows: h = 0, 1).
struct ImageRows {
  float scores[kImageKeys / 2];
  float out[kImageHead / 2];
  // The probabilities as operands of products: [part][16 keys].
  uint32_t probabilities[2][kImageKeys / 16][4];
  float top[2], sum[2];
  float factor;  // from scores to exponents of 2

  __device__ __forceinline__ void start_scores(const uint8_t* queries, const uint8_t* keys) {
    const uint64_t a = shared_descriptor(queries, SharedLayout::swizzle_128, 8 * kImageRow);
    const uint64_t b = shared_descriptor(keys, SharedLayout::swizzle_128, 8 * kImageRow);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kImageHead / 16; ++step) {
      wgmma_bf16<kImageKeys>(scores, advance_descriptor(a, step * 32),
                             advance_descriptor(b, step * 32), step > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void start_values(const uint8_t* values) {
    const uint64_t b = shared_descriptor(values, SharedLayout::swizzle_128, 8 * kImageRow);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kImageKeys / 16; ++step) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        wgmma_bf16<kImageHead, Contiguous::other>(
            out, probabilities[part][step], advance_descriptor(b, step * 16 * kImageRow), true);
      }
    }
    wgmma_commit();
  }

  // Rows beyond the last key are zeros in shared memory, not keys.
  __device__ __forceinline__ void drop_scores_from(int keys, int lane) {
#pragma unroll
    for (int i = 0; i < kImageKeys / 2; ++i) {
      if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= keys) scores[i] = -CUDART_INF_F;
    }
  }

  // Scores become probabilities relative to the new maxima; returns what the old ones shrink by.
  __device__ __forceinline__ void take_scores(float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = top[h];
#pragma unroll
      for (int i = 2 * h; i < kImageKeys / 2; i += 4) {
        largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      shrink[h] = exp2_approximate((top[h] - largest) * factor);
      top[h] = largest;
      const float base = -largest * factor;
      float added = 0;
#pragma unroll
      for (int i = 2 * h; i < kImageKeys / 2; i += 4) {
        scores[i] = exp2_approximate(fmaf(scores[i], factor, base));
        scores[i + 1] = exp2_approximate(fmaf(scores[i + 1], factor, base));
        added += scores[i] + scores[i + 1];
      }
      sum[h] = sum[h] * shrink[h] + added;
    }
  }

  // No product may be reading them.
  __device__ __forceinline__ void split_probabilities() {
#pragma unroll
    for (int i = 0; i < kImageKeys / 4; ++i) {
      const __nv_bfloat162 high = __floats2bfloat162_rn(scores[2 * i], scores[2 * i + 1]);
      const float2 kept = __bfloat1622float2(high);
      const __nv_bfloat162 low =
          __floats2bfloat162_rn(scores[2 * i] - kept.x, scores[2 * i + 1] - kept.y);
      probabilities[0][i / 4][i % 4] = reinterpret_cast<const uint32_t&>(high);
      probabilities[1][i / 4][i % 4] = reinterpret_cast<const uint32_t&>(low);
    }
  }
};

__global__ void __launch_bounds__(128 * kImageGroups + 128, 1)
    attend_64(const __grid_constant__ CUtensorMap turned_map,
              const __grid_constant__ CUtensorMap qkv_map, const ImageHeads of) {
  extern __shared__ uint8_t bytes[];
  auto& shared =
      *reinterpret_cast<ImageShared*>(bytes + (1024 - shared_address(bytes) % 1024) % 1024);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y);
  const int first_query = static_cast<int>(blockIdx.x) * kImageGroups * kImageQueries;
  const int tokens = static_cast<int>(of.tokens), heads = static_cast<int>(of.heads);
  const int tiles = (tokens + kImageKeys - 1) / kImageKeys;
  if (threadIdx.x == 0) {
    barrier_init(&shared.queries_full, 1);
    for (int i = 0; i < kImageStages; ++i) {
      barrier_init(&shared.keys_full[i], 1);
      barrier_init(&shared.values_full[i], 1);
      barrier_init(&shared.empty[i], 4 * kImageGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_inputs();

  if (warp >= 4 * kImageGroups) {
    give_registers<24>();
    if (warp > 4 * kImageGroups || lane > 0) return;
    barrier_expect(&shared.queries_full, sizeof(shared.queries));
    for (int group = 0; group < kImageGroups; ++group) {
      copy_box(shared.queries[group], turned_map, head * kImageHead,
               first_query + group * kImageQueries, &shared.queries_full);
    }
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % kImageStages;
      if (tile >= kImageStages) barrier_wait(&shared.empty[stage], tile / kImageStages % 2 ^ 1);
      barrier_expect(&shared.keys_full[stage], sizeof(shared.keys[stage]));
      barrier_expect(&shared.values_full[stage], sizeof(shared.values[stage]));
      // Two boxes: a box's 64 rows serve queries as well.
      for (int half = 0; half < 2; ++half) {
        const int row = tile * kImageKeys + half * 64;
        copy_box(shared.keys[stage] + half * 64 * kImageRow, turned_map,
                 (heads + head) * kImageHead, row, &shared.keys_full[stage]);
        copy_box(shared.values[stage] + half * 64 * kImageRow, qkv_map,
                 (2 * heads + head) * kImageHead, row, &shared.values_full[stage]);
      }
    }
    let_next_start();
    return;
  }

  take_registers<240>();
  const uint8_t* queries = shared.queries[warp / 4];
  ImageRows rows;
#pragma unroll
  for (float& value : rows.out) value = 0;
  rows.top[0] = rows.top[1] = -CUDART_INF_F;
  rows.sum[0] = rows.sum[1] = 0;
  rows.factor = of.scale * CUDART_L2E_F;
  float shrink[2];
  barrier_wait(&shared.queries_full, 0);
  barrier_wait(&shared.keys_full[0], 0);
  rows.start_scores(queries, shared.keys[0]);
  wgmma_wait<0>();
  wgmma_hold(rows.scores);
  if (tiles == 1) rows.drop_scores_from(tokens, lane);
  rows.take_scores(shrink);
  rows.split_probabilities();
  for (int tile = 1; tile < tiles; ++tile) {
    const int stage = tile % kImageStages, before = (tile - 1) % kImageStages;
    barrier_wait(&shared.keys_full[stage], tile / kImageStages % 2);
    rows.start_scores(queries, shared.keys[stage]);
    barrier_wait(&shared.values_full[before], (tile - 1) / kImageStages % 2);
    rows.start_values(shared.values[before]);
    wgmma_wait<1>();
    wgmma_hold(rows.scores);
    if (tile == tiles - 1) rows.drop_scores_from(tokens - tile * kImageKeys, lane);
    rows.take_scores(shrink);
    wgmma_wait<0>();
    wgmma_hold(rows.out);
    if (lane == 0) barrier_arrive(&shared.empty[before]);
#pragma unroll
    for (int i = 0; i < kImageHead / 2; ++i) rows.out[i] *= shrink[i / 2 % 2];
    rows.split_probabilities();
  }
  barrier_wait(&shared.values_full[(tiles - 1) % kImageStages], (tiles - 1) / kImageStages % 2);
  rows.start_values(shared.values[(tiles - 1) % kImageStages]);
  wgmma_wait<0>();
  wgmma_hold(rows.out);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = rows.sum[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int query = first_query + warp * 16 + lane / 4 + h * 8;
    if (query >= tokens) continue;
    __nv_bfloat16* to = of.o + (int64_t{query} * heads + head) * kImageHead + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kImageHead / 8; ++j) {
      *reinterpret_cast<__nv_bfloat162*>(to + j * 8) = __floats2bfloat162_rn(
          __fdiv_rn(rows.out[4 * j + 2 * h], sum), __fdiv_rn(rows.out[4 * j + 2 * h + 1], sum));
    }
  }
}

}  // namespace cachalot::cuda
