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

constexpr int kGroups = 3;                     // warpgroups of a block that multiply, and
constexpr int kThreads = 128 * kGroups + 128;  // one whose warps each copy for one of them
constexpr int kStages = 6;                     // tiles of keys, of each
// Registers of a thread; at the start all have the same, and there will be no more of them.
constexpr int kStart = 65536 / kThreads / 8 * 8, kCopying = 32;
constexpr int kMultiplying = (kThreads * kStart - 128 * kCopying) / (128 * kGroups) / 8 * 8;
constexpr int kRowBytes = 68, kTileBytes = kRowBytes * static_cast<int>(kScoreTile);
constexpr int kRows = static_cast<int>(kScoreRows);
constexpr int kBlockEntries = 8;  // of a candidate block
constexpr int kBlockBytes = kBlockEntries * kRowBytes;
constexpr int kTileBlocks = static_cast<int>(kScoreTile) / kBlockEntries;

// Neighbouring rows of one sequence, which share its keys.
struct Run {
  int32_t first_row, end_row;    // of the block's
  int32_t first_tile, end_tile;  // tiles of all runs are numbered through
  int32_t slot;
};

struct SharedMemory {
  alignas(1024) uint8_t queries[kRows][kTensorQueryBytes];
  alignas(128) uint8_t keys[kGroups][kStages][kTileBytes];
  TensorQueryScales scales[kRows];
  Barrier queries_ready;
  Barrier full[kGroups][kStages], empty[kGroups][kStages];
  Run runs[kRows];
  int32_t shares[kGroups + 1];  // a warpgroup's tiles begin here and end where the next one's do
};

// Finds the runs of the block's rows and what of their tiles is whose; by one warp. A tile costs as
// much as its rows and about one more for expanding it.
template <bool kCandidates>
__device__ void find_runs(const IndexPool& pool, int32_t first_row, int32_t rows,
                          SharedMemory& shared) {
  const int32_t lane = threadIdx.x % 32, t = first_row + min(lane, rows - 1);
  const int32_t sequence = pool.rows.first_rows[t], visible = pool.visible(t),
                slot = pool.rows.slots[t];
  const int32_t before = __shfl_up_sync(~0u, sequence, 1);
  const bool starts = lane < rows && (kCandidates || lane == 0 || sequence != before);
  const uint32_t all = __ballot_sync(~0u, starts);
  int32_t tiles = 0, cost = 0, run = 0;
  for (uint32_t left = all; left != 0; left &= left - 1, ++run) {
    const int32_t row = __ffs(left) - 1;
    const uint32_t next = left & (left - 1);
    const int32_t end = next == 0 ? rows : __ffs(next) - 1;
    // Positions ascend in a run: its last row sees most.
    int32_t most = __shfl_sync(~0u, visible, end - 1);
    if (kCandidates) {
      most = min((most + kBlockEntries - 1) / kBlockEntries, pool.candidate_blocks) * kBlockEntries;
    }
    const int32_t own =
        (most + static_cast<int32_t>(kScoreTile) - 1) / static_cast<int32_t>(kScoreTile);
    const int32_t run_slot = __shfl_sync(~0u, slot, row);
    if (lane == 0) shared.runs[run] = {row, end, tiles, tiles + own, run_slot};
    tiles += own;
    cost += own * (end - row + 1);
  }
  __syncwarp();
  if (lane > kGroups) return;
  int32_t left = static_cast<int32_t>(static_cast<int64_t>(cost) * (blockIdx.x * kGroups + lane) /
                                      (gridDim.x * kGroups));
  int32_t at = tiles;
  for (int32_t r = 0; r < run; ++r) {
    const Run& of = shared.runs[r];
    const int32_t each = of.end_row - of.first_row + 1;
    const int32_t whole = (of.end_tile - of.first_tile) * each;
    if (left < whole) {
      at = of.first_tile + (left + each - 1) / each;
      break;
    }
    left -= whole;
  }
  shared.shares[lane] = at;
}

// Where lane `lane` of the copying warp finds its part of the tiles from `tile` on: a tile of the
// next 32, or of the next 4 a candidate block.
template <bool kCandidates>
__device__ const uint8_t* find_keys(const IndexPool& pool, int32_t first_row, int32_t tile,
                                    int32_t end, const SharedMemory& shared) {
  const int32_t lane = threadIdx.x % 32;
  tile += kCandidates ? lane / kTileBlocks : lane;
  if (tile >= end) return nullptr;
  int32_t run = 0;
  while (tile >= shared.runs[run].end_tile) ++run;
  const Run& of = shared.runs[run];
  int32_t entry = (tile - of.first_tile) * static_cast<int32_t>(kScoreTile);
  if constexpr (kCandidates) {
    // Behind the list's end any block will do: nobody reads its scores.
    const int32_t at = entry / kBlockEntries + lane % kTileBlocks;
    entry = at < pool.candidate_blocks
                ? max(pool.blocks_of(first_row + of.first_row)[at], 0) * kBlockEntries
                : 0;
  }
  const int32_t page_shift = __ffs(pool.keys.rows_per_page) - 1;
  const int32_t page =
      pool.keys
          .table[static_cast<int64_t>(of.slot) * pool.keys.pages_per_slot + (entry >> page_shift)];
  const int32_t row = entry & (pool.keys.rows_per_page - 1);
  return pool.keys.rows + (static_cast<int64_t>(page) * pool.keys.rows_per_page + row) * kRowBytes;
}

// Copies the keys of a warpgroup's tiles to its stages, as these are emptied; a warp. Places are
// looked up 32 ahead.
template <bool kCandidates>
__device__ void copy_keys(const IndexPool& pool, int32_t first_row, int32_t group,
                          SharedMemory& shared) {
  constexpr int32_t kAhead = kCandidates ? 32 / kTileBlocks : 32;  // tiles
  const int32_t lane = threadIdx.x % 32, end = shared.shares[group + 1];
  int32_t tile = shared.shares[group], stage = 0;
  uint32_t parity = 1;  // stages begin empty
  const uint8_t* next = find_keys<kCandidates>(pool, first_row, tile, end, shared);
  while (tile < end) {
    const uint8_t* from = next;
    next = find_keys<kCandidates>(pool, first_row, tile + kAhead, end, shared);
    const int32_t count = min(kAhead, end - tile);
#pragma unroll 1
    for (int32_t i = 0; i < count; ++i) {
      Barrier* full = &shared.full[group][stage];
      barrier_wait(&shared.empty[group][stage], parity);
      if constexpr (kCandidates) {
        if (lane == 0) barrier_expect(full, kTileBytes);
        __syncwarp();
        if (lane / kTileBlocks == i) {
          copy_bulk(shared.keys[group][stage] + lane % kTileBlocks * kBlockBytes, from, kBlockBytes,
                    full);
        }
      } else if (lane == i) {
        barrier_expect(full, kTileBytes);
        copy_bulk(shared.keys[group][stage], from, kTileBytes, full);
      }
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    tile += count;
  }
}

// Powers of two, parameters of the kernel because the compiler makes shifts of products with
// numbers it knows: of units that shift there are half as many as instructions are started, and
// those that multiply are idle.
struct Powers {
  uint32_t two = 1u << 2, four = 1u << 4, seven = 1u << 7, fifteen = 1u << 15;
  uint32_t twenty_three = 1u << 23;
};

// Eight E2M1 numbers in E4M3, times 2^-6: the low nibbles, then the high ones. Their exponent and
// mantissa bits become the lowest exponent bits and the highest mantissa bit; denormals match.
__device__ inline void expand(uint32_t word, const Powers& powers, uint32_t& low, uint32_t& high) {
  low = (word * powers.two & 0x1C1C1C1Cu) | (word * powers.four & 0x80808080u);
  high = (word >> 2 & 0x1C1C1C1Cu) | (word & 0x80808080u);
}

// Rows `row` and row + 8 of a tile of keys, as this thread holds them.
struct Keys {
  uint32_t codes[kTensorGroups][4];
  float scales[2][kTensorGroups];

  // `row`: where the first lies.
  __device__ void load(const uint8_t* row, int32_t lane, const Powers& powers) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* words = reinterpret_cast<const uint32_t*>(row + 8 * half * kRowBytes);
#pragma unroll
      for (int g = 0; g < kTensorGroups; ++g) {
        expand(words[4 * g + lane % 4], powers, codes[g][half], codes[g][2 + half]);
      }
      // An E8M0 code is a float's exponent. 0 and 255, which no quantizer writes here, become 0 and
      // infinity.
      const uint32_t exponents = words[16];
      scales[half][0] = __uint_as_float(exponents * powers.twenty_three & 0x7F800000u);
      scales[half][1] = __uint_as_float(exponents * powers.fifteen & 0x7F800000u);
      scales[half][2] = __uint_as_float(exponents * powers.seven & 0x7F800000u);
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

// Starts the products of the keys with one row's query, at `columns` of shared memory.
__device__ inline void start_products(float (&dots)[kTensorGroups][16], const Keys& keys,
                                      uint32_t columns) {
  // All lanes have the same, which the compiler does not know; descriptors want it to.
  columns = __reduce_max_sync(~0u, columns);
  wgmma_fence();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) {
    wgmma_fp8(dots[g], keys.codes[g], query_descriptor(columns + 32 * g / 16), false);
  }
  wgmma_commit();
}

// Two scores from the products; `weight` is that of the thread's first head. In lanes with bit 1
// clear, one score each: of key row + 8 * (lane % 2).
template <bool kWide>
__device__ inline float score(float (&dots)[kTensorGroups][16], const Keys& keys,
                              const float* weight, int32_t lane) {
  wgmma_wait<0>();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) wgmma_hold(dots[g]);
  float weights[8];
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(weight + i);
    weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z, weights[i + 3] = four.w;
  }
  if (kWide) {
#pragma unroll
    for (int g = 0; g < kTensorGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        dots[g][i] *= weight[(1 + g) * kTensorHeads + i / 4 * 2 + i % 2];
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

// Scores the tiles of the block that are this warpgroup's.
template <bool kWide>
__device__ inline void score_tiles(const IndexPool& pool, int32_t first_row, const Powers& powers,
                                   SharedMemory& shared) {
  const int32_t group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32;
  int32_t lane = threadIdx.x % 32;
  // Of the thread's keys in the first stage, and of that stage's barriers.
  int32_t own_keys = group * kStages * kTileBytes + (16 * warp + lane / 4) * kRowBytes;
  int32_t own_barriers = group * kStages;
  // Registers are few, but the compiler may not save these: working them out again costs more.
  computed_once(lane);
  computed_once(own_keys);
  computed_once(own_barriers);
  const auto columns =
      static_cast<uint32_t>(shared_descriptor(shared.queries, SharedLayout::swizzle_128, 1024));
  // Where the thread's first score of the first row and a first tile would go.
  float* const scores = pool.scores_of(first_row) + 16 * warp + 8 * (lane % 2) + lane / 4;
  const float* const weights = shared.scales[0].weight + lane % 4 * 8;
  const int32_t end = shared.shares[group + 1];
  int32_t tile = shared.shares[group], run_end = 0, next_run = 0, stage = 0;
  uint32_t parity = 0;
  int32_t rows = 0;
  uint32_t run_columns = 0;
  const float* run_weights = nullptr;
  float* to = nullptr;
  // The next tile's keys, while products with the present one's run.
  const auto fetch = [&](Keys& keys) {
    barrier_wait(&shared.full[0][0] + own_barriers + stage, parity);
    keys.load(&shared.keys[0][0][0] + own_keys + stage * kTileBytes, lane, powers);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[0][0] + own_barriers + stage);
    if (++stage == kStages) stage = 0, parity ^= 1;
  };
  const auto score_tile = [&](const Keys& keys, Keys& next) {
    if (tile >= run_end) {
      const Run* run;
      do {
        run = &shared.runs[next_run++];
        run_end = run->end_tile;
      } while (tile >= run_end);
      const int32_t row = run->first_row;
      rows = run->end_row - row;
      run_columns = columns + static_cast<uint32_t>(row) * (kTensorQueryBytes / 16);
      run_weights = weights + row * static_cast<int32_t>(sizeof(TensorQueryScales) / 4);
      to = scores + row * pool.stride + (tile - run->first_tile) * static_cast<int32_t>(kScoreTile);
    }
    float* row_to = to;
    const float* row_weights = run_weights;
    uint32_t row_columns = run_columns;
    int32_t left = rows;
    float dots[kTensorGroups][16];
#pragma unroll 1
    for (; left > 1; --left) {
      start_products(dots, keys, row_columns);
      const float sum = score<kWide>(dots, keys, row_weights, lane);
      if ((lane & 2) == 0) *row_to = sum;
      row_to += pool.stride;
      row_weights += sizeof(TensorQueryScales) / 4;
      row_columns += kTensorQueryBytes / 16;
    }
    start_products(dots, keys, row_columns);
    if (tile + 1 < end) fetch(next);
    const float sum = score<kWide>(dots, keys, row_weights, lane);
    if ((lane & 2) == 0) *row_to = sum;
    to += kScoreTile;
    ++tile;
  };
  if (tile >= end) return;
  Keys even, odd;
  fetch(even);
  for (;;) {
    score_tile(even, odd);
    if (tile >= end) break;
    score_tile(odd, even);
    if (tile >= end) break;
  }
}

// blockIdx.y: kRows rows of the step; blockIdx.x: one of gridDim.x parts of their tiles. How many
// tiles there are the device alone knows.
template <bool kCandidates>
__global__ void __launch_bounds__(kThreads, 1)
    tensor_scores_kernel(IndexPool pool, TensorQueries queries, Powers powers) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  const int32_t first_row = pool.first + static_cast<int32_t>(blockIdx.y) * kRows;
  const int32_t rows = min(kRows, pool.first + pool.count - first_row);
  // Keys, positions, tables and candidates are read before wait_for_inputs(): the kernel before
  // this one, queries or a selection, writes none of them, and lets this one start after its own
  // wait, when all kernels before it are done.
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
  const int32_t warp = threadIdx.x / 32;
  if (warp == 4 * kGroups) find_runs<kCandidates>(pool, first_row, rows, shared);
  __syncthreads();
  if (warp >= 4 * kGroups) {
    give_registers<kCopying>();
    const int32_t group = warp - 4 * kGroups;
    if (group < kGroups) copy_keys<kCandidates>(pool, first_row, group, shared);
  } else {
    take_registers<kMultiplying>();
    wait_for_inputs();
    let_next_start();
    if (threadIdx.x == 0) {
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
    if (wide) {
      score_tiles<true>(pool, first_row, powers, shared);
    } else {
      score_tiles<false>(pool, first_row, powers, shared);
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
    launch(queue, "index_select", tensor_scores_kernel<true>, shape, pool, queries, Powers{});
  } else {
    launch(queue, "index_select", tensor_scores_kernel<false>, shape, pool, queries, Powers{});
  }
}

}  // namespace cachalot::cuda
