// Before the experts: their inputs rounded to FP8, and the (token, choice) pairs sorted by expert.
#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 512;

// x rounded, a thread per group of 32; BF16 holds what FP8 keeps exactly. Word 4 j + c of a group's
// 16 holds inputs 8 c + j and 8 c + j + 4: input_place().
__device__ void round_group(const uint4* in, uint4* out) {
  float group[kScaleBlock];
  float largest = 0;
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const uint4 eight = in[piece];
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      group[piece * 8 + 2 * i] = __uint_as_float(words[i] << 16);
      group[piece * 8 + 2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
    }
  }
#pragma unroll
  for (int i = 0; i < kScaleBlock; ++i) largest = fmaxf(largest, fabsf(group[i]));
  const Fp8Group fp8(largest);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t words[4];
#pragma unroll
    for (int c = 0; c < 4; ++c)
      words[c] = packed_bf16(fp8.rounded(group[8 * c + j], group[8 * c + j + 4]));
    out[j] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Three sums over the threads of a block, each thread's own not included.
struct Offsets {
  int rows = 0, narrow = 0, wide = 0;
};

__device__ int scan_warp(int value) {
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int before = __shfl_up_sync(~0u, value, lanes);
    if (static_cast<int>(threadIdx.x) % 32 >= lanes) value += before;
  }
  return value;
}

// Adds to `total`, and returns the sum of the threads before. `sums` holds one per warp.
__device__ int scan_block(int value, int* sums, int& total) {
  const int inclusive = scan_warp(value);
  const int warp = threadIdx.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 31) sums[warp] = inclusive;
  __syncthreads();
  int before = total;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + inclusive - value;
}

// visit(pair, its expert) for all pairs, by one block. Several ids are on their way at a time: one
// after the other, a hundred waits for memory would be what 8192 tokens cost.
template <class Visit>
__device__ void for_each_pair(const ExpertsStep& step, int pairs, Visit visit) {
  constexpr int kAtOnce = 8;
  for (int first = threadIdx.x; first < pairs; first += kAtOnce * kThreads) {
    int ids[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      ids[i] = first + i * kThreads < pairs ? step.ids[first + i * kThreads] : -1;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (ids[i] >= 0) visit(first + i * kThreads, ids[i]);
  }
}

// By one block. The order of an expert's rows is as chance has it: no row's result depends on it.
__device__ void sort_pairs(const ExpertsStep& step, int* counts) {
  __shared__ int sums[kThreads / 32];
  const int experts = static_cast<int>(step.plan.experts);
  const int pairs = static_cast<int>(step.plan.pairs());
  for (int e = threadIdx.x; e < experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  for_each_pair(step, pairs, [&](int, int id) { atomicAdd(&counts[id], 1); });
  __syncthreads();
  Offsets total;
  for (int first = 0; first < experts; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const int count = e < experts ? counts[e] : 0;
    const bool is_wide = count > kNarrowColumns;
    const int tiles = is_wide ? static_cast<int>(tiles_of(count, kWideColumns)) : count > 0;
    int row = scan_block(count, sums, total.rows);
    const int narrow = scan_block(is_wide ? 0 : tiles, sums, total.narrow);
    const int wide = scan_block(is_wide ? tiles : 0, sums, total.wide);
    if (count == 0) continue;
    counts[e] = row;
    ExpertTile* tile = is_wide ? step.wide_tiles + wide : step.narrow_tiles + narrow;
    const int columns = (count + tiles - 1) / tiles;
    const int end = row + count;
    for (; row < end; row += columns, ++tile)
      *tile = {step.experts[e], row, min(columns, end - row)};
  }
  if (threadIdx.x == 0) {
    step.tile_counts[0] = total.narrow;
    step.tile_counts[1] = total.wide;
  }
  __syncthreads();
  for_each_pair(step, pairs, [&](int pair, int id) {
    const int row = atomicAdd(&counts[id], 1);
    step.row_tokens[row] = pair / static_cast<int>(step.plan.choices);
    step.row_weights[row] = step.weights[pair];
    step.pair_rows[pair] = row;
  });
}

// Block 0 sorts, the others round.
__global__ void __launch_bounds__(kThreads) prepare(ExpertsStep step) {
  extern __shared__ int counts[];
  wait_for_inputs();
  let_next_start();
  if (blockIdx.x == 0) return sort_pairs(step, counts);
  const int64_t group = static_cast<int64_t>(blockIdx.x - 1) * kThreads + threadIdx.x;
  if (group >= step.plan.tokens * step.dim / kScaleBlock) return;
  round_group(reinterpret_cast<const uint4*>(step.x) + group * 4,
              reinterpret_cast<uint4*>(step.rounded_x) + group * 4);
}

}  // namespace

void experts_prepare(Queue& queue, const ExpertsStep& step) {
  const int64_t groups = step.plan.tokens * step.dim / kScaleBlock;
  launch(queue, "moe_experts", prepare,
         {.blocks = dim3(1 + (groups + kThreads - 1) / kThreads),
          .threads = kThreads,
          .shared_bytes = step.plan.experts * sizeof(int)},
         step);
}

}  // namespace cachalot::cuda
