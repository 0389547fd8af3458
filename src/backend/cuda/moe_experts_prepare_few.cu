// experts_prepare of so few tokens that a warp holds all pairs, one a lane: every warp finds the
// rows for itself, nothing waits for other threads.
#include <climits>

#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_rounding.cuh"
#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;

// Where a lane's pair goes.
struct PairPlace {
  uint32_t equals;  // lanes whose pairs chose the same expert
  int first_row;    // of the expert
  int row;          // of the pair
  bool is_first;    // of the pairs of its expert
};

// `id`: the lane's, INT_MAX behind the last of `pairs`.
__device__ PairPlace place_pair(int id, int pairs) {
  const int lane = threadIdx.x % 32;
  const uint32_t equals = __match_any_sync(~0u, id), before = equals & ((1u << lane) - 1);
  PairPlace place{.equals = equals, .first_row = 0, .row = 0, .is_first = before == 0};
  const int rows = place.is_first ? static_cast<int>(in_whole_atoms(__popc(equals))) : 0;
  for (int i = 0; i < pairs; ++i) {
    const int other = __shfl_sync(~0u, id, i), more = __shfl_sync(~0u, rows, i);
    if (other < id) place.first_row += more;
  }
  place.row = place.first_row + __popc(before);
  return place;
}

// By one warp. `experts`: their addresses in shared memory. Tiles are in the order in which pairs
// first name their experts. One whose outputs come from elsewhere has none.
__device__ void write_tiles(const ExpertsStep& step, const ExpertPointers* experts, int id,
                            int pairs, const PairPlace& place) {
  const int lane = threadIdx.x % 32;
  const bool is_tile = lane < pairs && place.is_first && !is_elsewhere(experts[id]);
  const uint32_t tiles = __ballot_sync(~0u, is_tile);
  if (lane == 0) step.tile_counts[0] = __popc(tiles), step.tile_counts[1] = 0;
  if (lane < pairs) {
    step.pair_rows[lane] = place.row;
    step.row_weights[place.row] = step.weights[lane];
  }
  if (!is_tile) return;
  const int rows = __popc(place.equals);
  // One tile: a token chooses an expert once, and of more than kNarrowColumns this is not asked.
  step.narrow_tiles[__popc(tiles & ((1u << lane) - 1))] = {experts[id], place.first_row, rows};
  for (int r = rows; r < in_whole_atoms(rows); ++r) step.row_weights[place.first_row + r] = 0;
}

// Blocks (pieces of a row, tokens); behind the pieces one more that writes the tiles.
__global__ void __launch_bounds__(kThreads) prepare_few(const ExpertsStep step) {
  extern __shared__ uint4 table[];
  let_next_start();
  const int thread = threadIdx.x, lane = thread % 32;
  const int pairs = static_cast<int>(step.plan.pairs());
  const int choices = static_cast<int>(step.plan.choices);
  if (blockIdx.x + 1 == gridDim.x) {
    if (blockIdx.y > 0) return wait_for_inputs();
    // The addresses of the matrices do not change: they may come before the pairs do.
    const int words = static_cast<int>(step.plan.experts * sizeof(ExpertPointers) / sizeof(uint4));
    for (int i = thread; i < words; i += kThreads)
      copy_16(&table[i], reinterpret_cast<const uint4*>(step.experts) + i);
    commit_copies();
    wait_for_inputs();
    const int id = lane < pairs ? step.ids[lane] : INT_MAX;
    wait_copies<0>();
    __syncthreads();
    if (thread < 32)
      write_tiles(step, reinterpret_cast<const ExpertPointers*>(table), id, pairs,
                  place_pair(id, pairs));
    return;
  }
  wait_for_inputs();
  const int token = static_cast<int>(blockIdx.y);
  const int piece = static_cast<int>(blockIdx.x) * kThreads + thread;
  const bool inside = piece * kPieceValues < step.dim;
  const auto* in = reinterpret_cast<const uint4*>(step.x + token * step.dim);
  const uint4 values = inside ? in[piece] : uint4{};
  const int id = lane < pairs ? step.ids[lane] : INT_MAX;
  const PairPlace place = place_pair(id, pairs);
  const uint4 rounded = rounded_piece(values);
  RoundedRows rows(step);
  if (inside) rows.write(static_cast<int>(step.plan.shared_row()) + token, piece, rounded);
  for (int choice = 0; choice < choices; ++choice) {
    const int row = __shfl_sync(~0u, place.row, token * choices + choice);
    if (inside) rows.write(row, piece, rounded);
  }
}

}  // namespace

bool prepare_few_takes(const ExpertsPlan& plan) {
  return plan.tokens <= kNarrowColumns && plan.pairs() <= 32 &&
         plan.experts * sizeof(ExpertPointers) <= size_t{48} << 10;
}

void experts_prepare_few(Queue& queue, const ExpertsStep& step) {
  const int64_t pieces = step.dim / kPieceValues;
  launch(queue, "moe_experts", prepare_few,
         {.blocks = dim3((pieces + kThreads - 1) / kThreads + 1, step.plan.tokens),
          .threads = kThreads,
          .shared_bytes = step.plan.experts * sizeof(ExpertPointers)},
         step);
}

}  // namespace cachalot::cuda
