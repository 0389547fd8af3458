// The fast scores: FP8 tensor cores, 32 heads of 128 channels. docs/kernels/index_select.md
//
// A group of 32 channels is one product of FP4 numbers, in E4M3: 32 multiples of a quarter, at most
// 36 each, so that its sum is exact even in the 14 bits FP8 products are added with. Groups are
// then scaled and added in FP32, in order.
#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_scores.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/computed_once.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kGroups = 2;  // warpgroups of a block, each with tiles of keys of its own
constexpr int kThreads = 128 * kGroups;
constexpr int kStages = 4;
constexpr int kRowBytes = 68, kTileBytes = kRowBytes * static_cast<int>(kScoreTile);
constexpr int kRows = static_cast<int>(kScoreRows);
constexpr int kBlockEntries = 8;  // of a candidate block
constexpr int kBlocks = static_cast<int>(kScoreTile) / kBlockEntries;

struct SharedMemory {
  alignas(1024) uint8_t queries[kRows][kTensorQueryBytes];
  alignas(128) uint8_t keys[kGroups][kStages][kTileBytes];
  TensorQueryScales scales[kRows];
  Barrier queries_ready;
  Barrier full[kGroups][kStages], empty[kGroups][kStages];
  // Neighbouring rows of one sequence are a run; tiles of all runs are numbered through.
  int32_t run_row[kRows + 1], run_tile[kRows + 1], run_slot[kRows], tiles;
};

// A tile among those of the block's rows; a warpgroup takes every step-th.
struct TilePlace {
  int32_t index, run = -1;
  int32_t run_first = 0, run_end = 0;  // tiles of the run

  // Once the index is one of a tile. True if the run is another one.
  __device__ bool seek(const SharedMemory& shared) {
    if (index < run_end) return false;
    do {
      run_first = run_end;
      run_end = shared.run_tile[++run + 1];
    } while (index >= run_end);
    return true;
  }
  __device__ int32_t tile() const { return index - run_first; }
};

// Copies the keys of a warpgroup's tiles to its stages; of the group's first warp. Where a tile
// lies takes one or two dependent loads, so they are begun early: find_block(), find_page(),
// start().
template <bool kCandidates>
struct Fetcher {
  int32_t block;  // of candidates, this lane's
  int32_t page, row;

  __device__ void find_block(TilePlace& place, const IndexPool& pool, const SharedMemory& shared,
                             int32_t first_row) {
    if (!kCandidates || place.index >= shared.tiles) return;
    place.seek(shared);
    const int32_t at = place.tile() * kBlocks + static_cast<int32_t>(threadIdx.x) % 32 % kBlocks;
    // Behind the list's end any block will do: nobody reads its scores.
    block = at < pool.candidate_blocks
                ? max(pool.blocks_of(first_row + shared.run_row[place.run])[at], 0)
                : 0;
  }
  __device__ void find_page(TilePlace& place, const IndexPool& pool, const SharedMemory& shared) {
    place.seek(shared);
    const int32_t page_shift = __ffs(pool.keys.rows_per_page) - 1;
    const int32_t entry =
        kCandidates ? block * kBlockEntries : place.tile() * static_cast<int32_t>(kScoreTile);
    page = pool.keys
               .table[static_cast<int64_t>(shared.run_slot[place.run]) * pool.keys.pages_per_slot +
                      (entry >> page_shift)];
    row = entry & (pool.keys.rows_per_page - 1);
  }
  __device__ void start(const IndexPool& pool, uint8_t* to, Barrier* full) const {
    const int32_t lane = threadIdx.x % 32;
    const uint8_t* from =
        pool.keys.rows + (static_cast<int64_t>(page) * pool.keys.rows_per_page + row) * kRowBytes;
    if (lane == 0) barrier_expect(full, kTileBytes);
    if constexpr (kCandidates) {
      constexpr int32_t kBytes = kBlockEntries * kRowBytes;
      __syncwarp();
      if (lane < kBlocks) copy_bulk(to + lane * kBytes, from, kBytes, full);
    } else if (lane == 0) {
      copy_bulk(to, from, kTileBytes, full);
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
      // An E8M0 code is a float's exponent. 0 and 255, which no quantizer writes here, become 0 and
      // infinity.
      const uint32_t exponents = words[16];
      scales[half][0] = __uint_as_float(exponents << 23 & 0x7F800000u);
      scales[half][1] = __uint_as_float(exponents << 15 & 0x7F800000u);
      scales[half][2] = __uint_as_float(exponents << 7 & 0x7F800000u);
      scales[half][3] = __uint_as_float(exponents >> 1 & 0x7F800000u);
      // Once per tile: the compiler would rather do it again for every row of the step.
#pragma unroll
      for (int g = 0; g < kTensorGroups; ++g) computed_once(scales[half][g]);
    }
  }
};

// Descriptors of queries differ in their lower words alone: 16-byte units of the address.
__device__ inline uint64_t query_descriptor(uint32_t lower) {
  constexpr uint32_t kUpper = static_cast<uint32_t>(SharedLayout::swizzle_128) << 30 | 1024 >> 4;
  return static_cast<uint64_t>(kUpper) << 32 | lower;
}

// Two scores: of this thread's keys with one row's query. In lanes with bit 1 clear, one score
// each: of key row + 8 * (lane % 2).
__device__ inline float score(const Keys& keys, uint32_t columns, const TensorQueryScales& scales,
                              bool wide) {
  const int32_t lane = threadIdx.x % 32, first_head = lane % 4 * 8;
  float dots[kTensorGroups][16];
  wgmma_fence();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) {
    wgmma_fp8(dots[g], keys.codes[g], query_descriptor(columns + 32 * g / 16), false);
  }
  wgmma_commit();
  float weights[8];
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(&scales.weight[first_head + i]);
    weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z, weights[i + 3] = four.w;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) wgmma_hold(dots[g]);
  if (wide && scales.wide != 0) {
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
      // Twice the positive part; the adders are twice as many as what compares.
      sums[half] = fmaf(weights[head], dot + fabsf(dot), sums[half]);
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
        shared.run_slot[run] = pool.rows.slots[first_row + row];
        shared.run_row[run] = row;
        shared.run_tile[run] = tiles;
      }
      tiles += (most + static_cast<int32_t>(kScoreTile) - 1) / static_cast<int32_t>(kScoreTile);
    }
    if (lane == 0) {
      shared.run_row[run] = rows;
      shared.run_tile[run] = tiles;
      shared.tiles = tiles;
    }
  }
  __syncthreads();
  if (static_cast<int32_t>(blockIdx.x) * kGroups >= shared.tiles) return;
  const int32_t step = static_cast<int32_t>(gridDim.x) * kGroups;
  TilePlace place{static_cast<int32_t>(blockIdx.x) * kGroups + group};
  Fetcher<kCandidates> fetcher{};
  TilePlace next = place;
  if (warp == 0) {
    fetcher.find_block(next, pool, shared, first_row);
    for (int stage = 0; stage < kStages && shared.tiles > next.index; ++stage) {
      fetcher.find_page(next, pool, shared);
      fetcher.start(pool, shared.keys[group][stage], &shared.full[group][stage]);
      next.index += step;
      fetcher.find_block(next, pool, shared, first_row);
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
  bool wide = false;
  for (int32_t r = 0; r < rows; ++r) wide |= shared.scales[r].wide != 0;
  const auto columns =
      static_cast<uint32_t>(shared_descriptor(shared.queries, SharedLayout::swizzle_128, 1024));
  // Where the thread's first score of the first row and a first tile would go.
  float* const scores = pool.scores_of(first_row) + 16 * warp + 8 * (lane % 2) + lane / 4;
  float* run_scores = nullptr;
  int32_t row = 0, last_row = 0;  // of the run
  for (int turn = 0; shared.tiles > place.index; ++turn, place.index += step) {
    const int stage = turn % kStages;
    const uint32_t parity = turn / kStages % 2;
    if (place.seek(shared)) {
      row = shared.run_row[place.run];
      last_row = shared.run_row[place.run + 1];
      run_scores = scores + row * pool.stride;
    }
    barrier_wait(&shared.full[group][stage], parity);
    Keys keys;
    keys.load(shared.keys[group][stage]);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[group][stage]);
    const bool fetches = warp == 0 && next.index < shared.tiles;
    if (fetches) fetcher.find_page(next, pool, shared);
    float* to = run_scores + place.tile() * static_cast<int32_t>(kScoreTile);
    for (int32_t r = row; r < last_row; ++r, to += pool.stride) {
      // All lanes have the same, which the compiler does not know; descriptors want it to.
      const auto uniform = __reduce_max_sync(~0u, static_cast<uint32_t>(r));
      const float sum =
          score(keys, columns + uniform * (kTensorQueryBytes / 16), shared.scales[uniform], wide);
      if ((lane & 2) == 0) *to = sum;
    }
    if (fetches) {
      // The other warps read this tile before their products began.
      barrier_wait(&shared.empty[group][stage], parity);
      fetcher.start(pool, shared.keys[group][stage], &shared.full[group][stage]);
      next.index += step;
      fetcher.find_block(next, pool, shared, first_row);
    }
    __syncwarp();
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
