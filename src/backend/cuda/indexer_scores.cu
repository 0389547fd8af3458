// The fast scores: FP8 tensor cores, 32 heads of 128 channels. docs/kernels/index_select.md
//
// A group of 32 channels is one product of FP4 numbers, in E4M3: 32 multiples of a quarter, at most
// 36 each, so that its sum is exact even in the 14 bits FP8 products are added with. Groups are
// then scaled and added in FP32, in order.
#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_scores.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kGroups = 2;  // warpgroups of a block, each with tiles of keys of its own
constexpr int kThreads = 128 * kGroups;
constexpr int kStages = 4;
constexpr int kRowBytes = 68, kTileBytes = kRowBytes * static_cast<int>(kScoreTile);
constexpr int kRows = static_cast<int>(kScoreRows);
constexpr int kBlockEntries = 8;  // of a candidate block

struct SharedMemory {
  alignas(1024) uint8_t queries[kRows][kTensorQueryBytes];
  alignas(128) uint8_t keys[kGroups][kStages][kTileBytes];
  TensorQueryScales scales[kRows];
  Barrier queries_ready;
  Barrier full[kGroups][kStages], empty[kGroups][kStages];
  // Neighbouring rows of one sequence are a run; tiles of all runs are numbered through.
  int32_t run_row[kRows + 1], run_tile[kRows + 1], runs;
};

// Walks the tiles of a warpgroup: every step-th of the block's rows.
template <bool kCandidates>
struct TileWalk {
  const IndexPool& pool;
  const SharedMemory& shared;
  int32_t first_row, index, step, run = 0;

  __device__ bool there() const { return index < shared.run_tile[shared.runs]; }
  __device__ void seek() {
    while (index >= shared.run_tile[run + 1]) ++run;
  }
  __device__ int32_t row() const { return first_row + shared.run_row[run]; }
  __device__ int32_t tile() const { return index - shared.run_tile[run]; }

  // Starts the copy of the tile; the first warp of the group calls.
  __device__ void fetch(uint8_t* to, Barrier* full) const {
    const int32_t lane = threadIdx.x % 32, t = row();
    const int32_t* pages =
        pool.keys.table + static_cast<int64_t>(pool.rows.slots[t]) * pool.keys.pages_per_slot;
    const auto address = [&](int32_t entry) {
      const int64_t page = pages[entry / pool.keys.rows_per_page];
      return pool.keys.rows +
             (page * pool.keys.rows_per_page + entry % pool.keys.rows_per_page) * kRowBytes;
    };
    if constexpr (kCandidates) {
      constexpr int32_t kBlocks = static_cast<int32_t>(kScoreTile) / kBlockEntries;
      if (lane >= kBlocks) return;
      const int32_t at = tile() * kBlocks + lane;
      // Behind the list's end any block will do: nobody reads its scores.
      const int32_t block = at < pool.candidate_blocks ? max(pool.blocks_of(t)[at], 0) : 0;
      if (lane == 0) barrier_expect(full, kTileBytes);
      __syncwarp((1u << kBlocks) - 1);
      copy_bulk(to + lane * kBlockEntries * kRowBytes, address(block * kBlockEntries),
                kBlockEntries * kRowBytes, full);
    } else if (lane == 0) {
      barrier_expect(full, kTileBytes);
      copy_bulk(to, address(tile() * static_cast<int32_t>(kScoreTile)), kTileBytes, full);
    }
  }
};

// Eight E2M1 numbers in E4M3, times 2^-6: the low nibbles, then the high ones. Their exponent and
// mantissa bits become the lowest exponent bits and the highest mantissa bit; denormals match.
__device__ inline void expand(uint32_t word, uint32_t& low, uint32_t& high) {
  low = (word << 2 & 0x1C1C1C1Cu) | (word << 4 & 0x80808080u);
  high = (word >> 2 & 0x1C1C1C1Cu) | (word & 0x80808080u);
}

// Rows `row` and row + 8 of a tile of keys, as this thread holds them.
struct Keys {
  uint32_t codes[kTensorGroups][4];
  float scales[2][kTensorGroups];

  __device__ void load(const uint8_t* tile) {
    const int32_t lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* words = reinterpret_cast<const uint32_t*>(tile + (row + 8 * half) * kRowBytes);
#pragma unroll
      for (int g = 0; g < kTensorGroups; ++g) {
        expand(words[4 * g + lane % 4], codes[g][half], codes[g][2 + half]);
      }
      const uint32_t exponents = words[16];
#pragma unroll
      for (int g = 0; g < kTensorGroups; ++g) {
        scales[half][g] = e8m0_value(exponents >> (8 * g) & 255);
      }
    }
  }
};

// Two scores: of this thread's keys with one row's query. In lanes with bit 1 clear, one score
// each: of key row + 8 * (lane % 2).
__device__ inline float score(const Keys& keys, const uint8_t* query,
                              const TensorQueryScales& scales) {
  const int32_t lane = threadIdx.x % 32, first_head = lane % 4 * 8;
  float dots[kTensorGroups][16];
  const uint64_t columns = shared_descriptor(query, SharedLayout::swizzle_128, 1024);
  wgmma_fence();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) {
    wgmma_fp8(dots[g], keys.codes[g], advance_descriptor(columns, 32 * g), false);
  }
  wgmma_commit();
  float weights[8];
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(&scales.weight[first_head + i]);
    weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z, weights[i + 3] = four.w;
  }
  const bool wide = scales.wide != 0;
  wgmma_wait<0>();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) wgmma_hold(dots[g]);
  if (wide) {
#pragma unroll
    for (int g = 0; g < kTensorGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        dots[g][i] *= scales.scale[g][first_head + i / 4 * 2 + i % 2];
      }
    }
  }
  float sums[2] = {0, 0};
#pragma unroll
  for (int head = 0; head < 8; ++head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = head / 2 * 4 + half * 2 + head % 2;
      float dot = dots[0][i] * keys.scales[half][0];
#pragma unroll
      for (int g = 1; g < kTensorGroups; ++g) dot = fmaf(dots[g][i], keys.scales[half][g], dot);
      sums[half] = fmaf(weights[head], fmaxf(dot, 0.0f), sums[half]);
    }
  }
  // Heads 0..7 and 8..15, then 16..23 and 24..31, then the two sums.
  const bool odd = lane % 2 != 0;
  float sum = odd ? sums[1] : sums[0];
  sum += __shfl_xor_sync(~0u, odd ? sums[0] : sums[1], 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum;
}

// blockIdx.y: kRows rows of the step; blockIdx.x: one of gridDim.x parts of their tiles. How many
// tiles there are the device alone knows.
template <bool kCandidates>
__global__ void __launch_bounds__(kThreads, IndexerPlan::kScoreBlocks)
    tensor_scores_kernel(IndexPool pool, TensorQueries queries) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  const int32_t group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int32_t first_row = pool.first + static_cast<int32_t>(blockIdx.y) * kRows;
  const int32_t rows = min(kRows, pool.first + pool.count - first_row);
  if (threadIdx.x == 0) {
    barrier_init(&shared.queries_ready, 1);
    for (int g = 0; g < kGroups; ++g) {
      for (int s = 0; s < kStages; ++s) {
        barrier_init(&shared.full[g][s], 1);
        barrier_init(&shared.empty[g][s], 4);
      }
    }
    fence_barrier_init();
  }
  wait_for_inputs();
  let_next_start();
  if (threadIdx.x < 32) {
    const int32_t t = first_row + min(lane, rows - 1);
    const int32_t sequence = pool.rows.first_rows[t], visible = pool.visible(t);
    const int32_t before = __shfl_up_sync(~0u, sequence, 1);
    const bool starts = lane < rows && (kCandidates || lane == 0 || sequence != before);
    const uint32_t all = __ballot_sync(~0u, starts);
    int32_t tiles = 0, run = 0;
    for (uint32_t left = all; left != 0; left &= left - 1, ++run) {
      const int32_t row = __ffs(left) - 1;
      const uint32_t next = left & (left - 1);
      // Positions ascend in a run: its last row sees most.
      int32_t most = __shfl_sync(~0u, visible, (next == 0 ? rows : __ffs(next) - 1) - 1);
      if (kCandidates) {
        most =
            min((most + kBlockEntries - 1) / kBlockEntries, pool.candidate_blocks) * kBlockEntries;
      }
      if (lane == 0) {
        shared.run_row[run] = row;
        shared.run_tile[run] = tiles;
      }
      tiles += (most + static_cast<int32_t>(kScoreTile) - 1) / static_cast<int32_t>(kScoreTile);
    }
    if (lane == 0) {
      shared.runs = run;
      shared.run_row[run] = rows;
      shared.run_tile[run] = tiles;
    }
  }
  __syncthreads();
  if (static_cast<int32_t>(blockIdx.x) * kGroups >= shared.run_tile[shared.runs]) return;
  TileWalk<kCandidates> next{pool, shared, first_row,
                             static_cast<int32_t>(blockIdx.x) * kGroups + group,
                             static_cast<int32_t>(gridDim.x) * kGroups};
  TileWalk<kCandidates> walk = next;
  if (warp == 0) {
    for (int stage = 0; stage < kStages && next.there(); ++stage, next.index += next.step) {
      next.seek();
      next.fetch(shared.keys[group][stage], &shared.full[group][stage]);
    }
  }
  if (threadIdx.x == kThreads - 1) {
    barrier_expect(&shared.queries_ready,
                   rows * (kTensorQueryBytes + static_cast<int32_t>(sizeof(TensorQueryScales))));
    copy_bulk(shared.queries, queries.codes + static_cast<int64_t>(first_row) * kTensorQueryBytes,
              rows * kTensorQueryBytes, &shared.queries_ready);
    copy_bulk(shared.scales, queries.scales + first_row,
              rows * static_cast<int32_t>(sizeof(TensorQueryScales)), &shared.queries_ready);
  }
  __syncwarp();
  barrier_wait(&shared.queries_ready, 0);
  for (int turn = 0; walk.there(); ++turn, walk.index += walk.step) {
    const int stage = turn % kStages;
    const uint32_t parity = turn / kStages % 2;
    walk.seek();
    barrier_wait(&shared.full[group][stage], parity);
    Keys keys;
    keys.load(shared.keys[group][stage]);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[group][stage]);
    if (warp == 0 && next.there()) {
      next.seek();
      barrier_wait(&shared.empty[group][stage], parity);
      next.fetch(shared.keys[group][stage], &shared.full[group][stage]);
      next.index += next.step;
    }
    __syncwarp();
    const int32_t key =
        walk.tile() * static_cast<int32_t>(kScoreTile) + 16 * warp + 8 * (lane % 2) + lane / 4;
    for (int32_t r = shared.run_row[walk.run]; r < shared.run_row[walk.run + 1]; ++r) {
      const float sum = score(keys, shared.queries[r], shared.scales[r]);
      if ((lane & 2) == 0) pool.scores_of(first_row + r)[key] = sum;
    }
  }
}

}  // namespace

void tensor_scores(Queue& queue, const IndexPool& pool, const TensorQueries& queries,
                   const IndexerPlan& plan) {
  const auto groups = static_cast<unsigned>((pool.count + kRows - 1) / kRows);
  const LaunchShape shape{.blocks = {static_cast<unsigned>(plan.score_splits), groups},
                          .threads = kThreads,
                          .shared_bytes = sizeof(SharedMemory)};
  if (pool.candidates != nullptr) {
    launch(queue, "index_select", tensor_scores_kernel<true>, shape, pool, queries);
  } else {
    launch(queue, "index_select", tensor_scores_kernel<false>, shape, pool, queries);
  }
}

}  // namespace cachalot::cuda
