// Before the experts: the (token, choice) pairs sorted by expert, and what they read: their tokens'
// values rounded to FP8, a row per pair.
//
// One kernel, no block waits for another: every block counts all pairs by itself. 49,152 ids, those
// of 8192 tokens, are 200 KB out of L2, a few microseconds beside the 0.6 GB of rows to write.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_rounding.cuh"

namespace cachalot::cuda {
namespace {

// Of a block: for steps in which it is counting that takes time, and for the others.
constexpr int kManyThreads = 1024, kFewThreads = 512;
constexpr int kManyTokens = 1024;

// Which part of a step a block rounds: some columns of some tokens, in units of what a warp rounds
// at a time.
struct Share {
  static constexpr int kUnit = 32 * kPieceValues;
  int tokens_per_block, units_per_block;
  int pairs_per_block;  // a multiple of 4
};

// visit(pair, its expert) for all pairs. Several ids are on their way at a time: one after the
// other, waits for memory would be what many tokens cost.
template <class Visit>
__device__ void for_each_pair(const int32_t* ids, int pairs, Visit visit) {
  constexpr int kAtOnce = 8;
  const int step = static_cast<int>(blockDim.x);
  for (int pair = static_cast<int>(threadIdx.x); pair < pairs; pair += kAtOnce * step) {
    int some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) some[i] = pair + i * step < pairs ? ids[pair + i * step] : -1;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (some[i] >= 0) visit(pair + i * step, some[i]);
  }
}

// Rows and tiles, of an expert or of all before it, in one number so that one scan adds all three:
// rows in the upper half, narrow and wide tiles in 16 bits each.
using Extent = uint64_t;
constexpr Extent kOnlyRows = ~Extent{0} << 32;

__device__ Extent extent_of(int count, int64_t wide_columns) {
  const auto tiles = static_cast<Extent>(tiles_of(count, wide_columns));
  return static_cast<Extent>(in_whole_atoms(count)) << 32 |
         (count > kNarrowColumns ? tiles : static_cast<Extent>(count > 0) << 16);
}
__device__ int rows_of(Extent extent) { return static_cast<int>(extent >> 32); }
__device__ int narrow_of(Extent extent) { return static_cast<int>(extent >> 16 & 0xFFFF); }
__device__ int wide_of(Extent extent) { return static_cast<int>(extent & 0xFFFF); }

// Adds to `total`, and returns the sum of the threads before. `sums` holds one per warp.
__device__ Extent scan_block(Extent value, Extent* sums, Extent& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  Extent inclusive = value;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Extent before = __shfl_up_sync(~0u, inclusive, lanes);
    if (lane >= lanes) inclusive += before;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  Extent of_warps = lane < warps ? sums[lane] : 0;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Extent before = __shfl_up_sync(~0u, of_warps, lanes);
    if (lane >= lanes) of_warps += before;
  }
  const Extent before_warp = __shfl_sync(~0u, of_warps, warp == 0 ? 0 : warp - 1);
  const Extent before = total + (warp == 0 ? 0 : before_warp) + inclusive - value;
  total += __shfl_sync(~0u, of_warps, 31);
  return before;
}

// Wide tiles by how many rows they have, the most first: blocks that walk them in turn then end
// together, whatever the tokens chose.
struct TileOrder {
  int* first;  // [kManyColumns / kAtomRows], of tiles of so many atoms of rows; shared memory

  static constexpr int kSizes = kManyColumns / kAtomRows;
  // The largest first.
  __device__ static int size_of(int rows) { return kSizes - (rows + kAtomRows - 1) / kAtomRows; }
  __device__ void count(int rows, int columns) const {
    for (; rows > 0; rows -= columns) atomicAdd(&first[size_of(min(columns, rows))], 1);
  }
  // By one warp: from how many there are of each size to where each begins.
  __device__ void begin() const {
    const int lane = threadIdx.x % 32;
    int inclusive = lane < kSizes ? first[lane] : 0;
    const int own = inclusive;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int before = __shfl_up_sync(~0u, inclusive, lanes);
      if (lane >= lanes) inclusive += before;
    }
    if (lane < kSizes) first[lane] = inclusive - own;
  }
  __device__ int place(int rows) const { return atomicAdd(&first[size_of(rows)], 1); }
};

// An expert's tile, if it has few rows, and the weights of the rows that it leaves empty. One whose
// outputs come from elsewhere has rows, which nobody reads, and no tiles.
__device__ void write_narrow_tile(const ExpertsStep& step, const ExpertPointers& matrices,
                                  Extent before, int count) {
  if (count == 0 || is_elsewhere(matrices)) return;
  const int row = rows_of(before);
  if (count <= kNarrowColumns) step.narrow_tiles[narrow_of(before)] = {matrices, row, count};
  for (int r = row + count; r < row + in_whole_atoms(count); ++r) step.row_weights[r] = 0;
}

// By a block: the tiles of experts with many rows.
__device__ void write_wide_tiles(const ExpertsStep& step, const int* first_rows, const int* counts,
                                 const TileOrder& order) {
  const int experts = static_cast<int>(step.plan.experts);
  const auto for_each = [&](auto visit) {
    for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x))
      if (counts[e] > kNarrowColumns && !is_elsewhere(step.experts[e]))
        visit(e, static_cast<int>(columns_per_tile(counts[e], step.plan.wide_columns())));
  };
  for (int i = static_cast<int>(threadIdx.x); i < TileOrder::kSizes; i += blockDim.x)
    order.first[i] = 0;
  __syncthreads();
  for_each([&](int e, int columns) { order.count(counts[e], columns); });
  __syncthreads();
  if (threadIdx.x < 32) order.begin();
  __syncthreads();
  for_each([&](int e, int columns) {
    for (int row = 0; row < counts[e]; row += columns) {
      const int rows = min(columns, counts[e] - row);
      step.wide_tiles[order.place(rows)] = {step.experts[e], first_rows[e] + row, rows};
    }
  });
}

// Blocks (parts of a row, groups of tokens); the first row of blocks has no tokens but one block
// that writes the tiles, which takes as long as what the others do. Shared memory:
// counts[2][experts] - pairs of the tokens before this block's, and all others - and the rows of
// this block's pairs.
__global__ void __launch_bounds__(kManyThreads) prepare(const ExpertsStep step, Share share) {
  extern __shared__ int4 shared[];
  __shared__ Extent sums[32];
  __shared__ int of_size[TileOrder::kSizes];
  let_next_start();
  const int thread = threadIdx.x, threads = static_cast<int>(blockDim.x);
  const int experts = static_cast<int>(step.plan.experts);
  const int choices = static_cast<int>(step.plan.choices);
  const int pairs = static_cast<int>(step.plan.pairs());
  const bool writes_tiles = blockIdx.y == 0;
  if (writes_tiles && blockIdx.x > 0) return wait_for_inputs();
  const int first_token =
      writes_tiles ? 0 : (static_cast<int>(blockIdx.y) - 1) * share.tokens_per_block;
  const int tokens =
      writes_tiles ? 0
                   : min(share.tokens_per_block, static_cast<int>(step.plan.tokens) - first_token);
  const int first_pair = first_token * choices, own = tokens * choices;
  const bool first_part = blockIdx.x == 0;
  int* own_ids = reinterpret_cast<int*>(shared);
  int* counts = own_ids + share.pairs_per_block;
  int* first_rows = counts;  // in place of counts[0]
  int* rows = counts + 2 * experts;
  // The addresses of the matrices do not change: they may come before the pairs do.
  ExpertPointers matrices{};
  if (writes_tiles && thread < experts) matrices = step.experts[thread];
  for (int i = thread; i < 2 * experts; i += threads) counts[i] = 0;
  // A warp rounds a unit of a token: its rows are the same for all lanes.
  const int units = static_cast<int>(step.dim) / Share::kUnit;
  const int first_unit = static_cast<int>(blockIdx.x) * share.units_per_block;
  const int own_units = min(share.units_per_block, units - first_unit);
  const int warps = threads / 32, rounds = tokens * own_units;
  const auto piece_of = [&](int i) { return (first_unit + i % own_units) * 32 + thread % 32; };
  const auto load = [&](int i) {
    const bf16* row = step.x + int64_t{first_token + i / own_units} * step.dim;
    return reinterpret_cast<const uint4*>(row)[piece_of(i)];
  };
  __syncthreads();
  wait_for_inputs();

  // Several pieces of a lane are on their way at a time.
  constexpr int kAhead = 3;
  int round = thread / 32;
  uint4 next[kAhead] = {};
  const auto load_next = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i * warps < rounds) next[i] = load(first + i * warps);
  };
  load_next(round);
  for_each_pair(step.ids, pairs, [&](int pair, int id) {
    const int mine = pair - first_pair;
    atomicAdd(&counts[mine < 0 ? id : experts + id], 1);
    if (mine >= 0 && mine < own) own_ids[mine] = id;
  });
  __syncthreads();
  Extent total = 0;
  for (int first = 0; first < experts; first += threads) {
    const int e = first + thread;
    const int before = e < experts ? counts[e] : 0;
    const int count = e < experts ? before + counts[experts + e] : 0;
    if (writes_tiles && first > 0 && e < experts) matrices = step.experts[e];
    Extent of_expert = extent_of(count, step.plan.wide_columns());
    if (writes_tiles && is_elsewhere(matrices)) of_expert &= kOnlyRows;
    const Extent extent = scan_block(of_expert, sums, total);
    if (e >= experts) continue;
    first_rows[e] = rows_of(extent) + before;
    if (writes_tiles) write_narrow_tile(step, matrices, extent, count);
  }
  if (writes_tiles && thread == 0) {
    step.tile_counts[0] = narrow_of(total);
    step.tile_counts[1] = wide_of(total);
    if (step.later_counts != nullptr) step.later_counts[0] = step.later_counts[1] = 0;
  }
  __syncthreads();
  // All pairs are counted as this block's here.
  if (writes_tiles) return write_wide_tiles(step, first_rows, counts + experts, {of_size});
  // An expert's rows are in the order of its pairs.
  for (int i = thread; i < own; i += threads) {
    const int id = own_ids[i];
    int row = first_rows[id];
    int other = 0;
    for (; other + 4 <= i; other += 4) {
      const int4 four = *reinterpret_cast<const int4*>(own_ids + other);
      row += (four.x == id) + (four.y == id) + (four.z == id) + (four.w == id);
    }
    for (; other < i; ++other) row += own_ids[other] == id;
    rows[i] = row;
    if (first_part) {
      step.row_weights[row] = step.weights[first_pair + i];
      step.pair_rows[first_pair + i] = row;
    }
  }
  __syncthreads();

  const RoundedRows out(step);
  const int first_shared = static_cast<int>(step.plan.shared_row()) + first_token;
  for (; round < rounds; round += kAhead * warps) {
    uint4 values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) values[i] = next[i];
    load_next(round + kAhead * warps);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int own_round = round + i * warps;
      if (own_round >= rounds) break;
      const int token = own_round / own_units, piece = piece_of(own_round);
      const uint4 rounded = rounded_piece(values[i]);
      out.write(first_shared + token, piece, rounded);
      if (step.later_counts != nullptr) continue;
#pragma unroll 6
      for (int choice = 0; choice < choices; ++choice)
        out.write(rows[token * choices + choice], piece, rounded);
    }
  }
}

}  // namespace

void experts_prepare(Queue& queue, const ExpertsStep& step) {
  const ExpertsPlan& plan = step.plan;
  if (prepare_few_takes(plan)) return experts_prepare_few(queue, step);
  CACHALOT_CHECK(plan.most_wide_tiles() <= 0xFFFF && plan.experts <= 0xFFFF,
                 "{} tokens: tiles are counted in 16 bits", plan.tokens);
  // Few tokens: a block or more for each, so that one multiprocessor does not write all.
  const int64_t processors = queue.multiprocessors();
  const int64_t units = step.dim / Share::kUnit;
  const bool few = plan.tokens <= kManyTokens;
  const int64_t parts =
      std::clamp(processors / plan.tokens, int64_t{1}, std::max(units / 2, int64_t{1}));
  const int64_t tokens_per_block = (plan.tokens + processors - 1) / processors;
  const Share share{
      .tokens_per_block = static_cast<int>(tokens_per_block),
      .units_per_block = static_cast<int>((units + parts - 1) / parts),
      .pairs_per_block = static_cast<int>((tokens_per_block * plan.choices + 3) / 4 * 4)};
  const int64_t token_blocks = (plan.tokens + tokens_per_block - 1) / tokens_per_block;
  launch(queue, "moe_experts", prepare,
         {.blocks =
              dim3((units + share.units_per_block - 1) / share.units_per_block, token_blocks + 1),
          .threads = few ? kFewThreads : kManyThreads,
          .shared_bytes = 2 * (plan.experts + share.pairs_per_block) * sizeof(int)},
         step, share);
}

}  // namespace cachalot::cuda
