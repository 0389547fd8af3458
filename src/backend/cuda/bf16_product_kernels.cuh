// The two kernels of a product: narrow for few tokens, wide for many (plan/product_plan.h).
//
// Weights are the 64 rows (M) of a warpgroup's products, tokens their columns (N), so that what is
// summed for an element, and in which order, depends on neither: K in steps of 16, ascending,
// within a segment, and segments in order.
//
// One warp keeps a ring of stages of shared memory full with the copy engine, also across tiles;
// it fetches its first weights while the kernel before this one still runs.
#pragma once

#include "backend/cuda/bf16_product_narrow.cuh"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {

template <class Weights, int kN>
__global__ void __launch_bounds__(kNarrowThreads)
    multiply_narrow(const __grid_constant__ CUtensorMap weight_map,
                    const __grid_constant__ CUtensorMap x_map, const ProductShape shape,
                    const TileScales scales, const ProductOutput output) {
  extern __shared__ uint8_t shared[];
  multiply_narrow_tiles<Weights, kN>(weight_map, x_map, shape, scales, output,
                                     static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x),
                                     shared);
}

// Behind the `blocks` of a product a few that write rows of the window, a warp each.
template <class Weights, int kN>
__global__ void __launch_bounds__(kNarrowThreads)
    multiply_narrow_and_write(const __grid_constant__ CUtensorMap weight_map,
                              const __grid_constant__ CUtensorMap x_map, const ProductShape shape,
                              const TileScales scales, const ProductOutput output,
                              const WindowWrite window, int blocks) {
  extern __shared__ uint8_t shared[];
  const int writer = static_cast<int>(blockIdx.x) - blocks;
  if (writer < 0) {
    return multiply_narrow_tiles<Weights, kN>(weight_map, x_map, shape, scales, output,
                                              static_cast<int>(blockIdx.x), blocks, shared);
  }
  let_next_start();
  wait_for_inputs();
  constexpr int kWarps = kNarrowThreads / 32;
  const int warps = (static_cast<int>(gridDim.x) - blocks) * kWarps;
  for (int64_t row = writer * kWarps + threadIdx.x / 32; row < window.tokens; row += warps)
    write_window_row<uint4>(window, row, static_cast<int>(threadIdx.x) % 32, 32);
}

template <class Weights, int kN>
struct WideStage {
  static constexpr int kRowBytes = kHalf * Weights::kBytes;
  static constexpr int kGroupBytes = kTileRows * kRowBytes;  // of a warpgroup
  static constexpr int kWeightBytes = 2 * kGroupBytes;
  static constexpr int kBytes = kWeightBytes + kN * kBoxRow;
};

// Results of 64 tokens, 64 rows each, as the copy engine takes them: twice, for a warpgroup.
constexpr int kOutletTokens = 64;
constexpr int kOutletBytes = 2 * kOutletTokens * kBoxRow;

// What a warpgroup has summed goes to device memory.
template <int kN>
__device__ __forceinline__ void write_wide(const ProductShape& shape, const ProductOutput& output,
                                           const CUtensorMap& y_map, const ProductTile& tile,
                                           int first_row, uint8_t* outlet, int barrier,
                                           const float (&sums)[kN / 2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (!shape.staged) {
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      output.store(shape, tile.tokens + i / 4 * 8 + lane % 4 * 2 + i % 2, tile.group,
                   first_row + warp * 16 + lane / 4 + i / 2 % 2 * 8, sums[i]);
    }
    return;
  }
  const int row = first_row + warp * 16 + lane / 4;
  const float bias[2] = {output.bias_of(shape, tile.group, row),
                         output.bias_of(shape, tile.group, row + 8)};
  const bool sends = threadIdx.x % 128 == 0;
  // Where this lane's eight rows of one token go: matrices are 8 tokens by 8 rows, those of one
  // store two by two. Pieces of 16 bytes are swizzled as the copy engine expects.
  const int token_of_lane = lane / 16 * 8 + lane % 8, piece = 2 * warp + lane / 8 % 2;
  const int to_lane = token_of_lane * kBoxRow + (piece ^ token_of_lane % 8) * 16;
#pragma unroll
  for (int part = 0; part < kN / kOutletTokens; ++part) {
    uint8_t* const box = outlet + part % 2 * kOutletTokens * kBoxRow;
    if (sends) wait_stores_read<1>();  // the last but one has left its half
    sync_threads_of(barrier, 128);
#pragma unroll
    for (int pair = 0; pair < kOutletTokens / 16; ++pair) {
      uint32_t matrices[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int i = (part * kOutletTokens + pair * 16) / 2 + m * 2;
        const __nv_bfloat162 both =
            __floats2bfloat162_rn(sums[i] + bias[m % 2], sums[i + 1] + bias[m % 2]);
        matrices[m] = reinterpret_cast<const uint32_t&>(both);
      }
      store_transposed(box + pair * 16 * kBoxRow + to_lane, matrices);
    }
    fence_shared_for_async();
    sync_threads_of(barrier, 128);
    if (!sends) continue;
    store_box(y_map, tile.group * shape.rows + first_row, tile.tokens + part * kOutletTokens, box);
    commit_stores();
  }
}

// Two blocks of a cluster take 128 rows each and the same kN tokens, of which each fetches half for
// both. Two warpgroups of 64 rows, a third that fetches.
template <class Weights, int kN, bool kSegmented>
__global__ void __launch_bounds__(384, 1)
    multiply_wide(const __grid_constant__ CUtensorMap weight_map,
                  const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ CUtensorMap y_map, const ProductShape shape,
                  const TileScales scales, const ProductOutput output) {
  using Stage = WideStage<Weights, kN>;
  extern __shared__ uint8_t shared[];
  __shared__ StageBarriers barriers;
  uint8_t* const stages = aligned_to_atoms(shared);
  uint8_t* const beyond_stages = stages + shape.stages * Stage::kBytes + 2 * kOutletBytes;

  const auto cluster = cooperative_groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int pairs = shape.row_tiles / 2;
  const int items = shape.groups * pairs * shape.token_tiles;
  const int first_item = static_cast<int>(blockIdx.x) / 2, stride = static_cast<int>(gridDim.x) / 2;
  // Tiles that run together share weights and tokens in L2: eight pairs wide, all tokens, then the
  // next eight.
  const auto tile_of = [&](int item) {
    constexpr int kPairs = 8;
    const int of_group = item % (pairs * shape.token_tiles);
    const int first = of_group / (kPairs * shape.token_tiles) * kPairs;
    const int width = min(kPairs, pairs - first), at = of_group - first * shape.token_tiles;
    return ProductTile{at / width * kN, ((first + at % width) * 2 + rank) * 2 * kTileRows,
                       item / (pairs * shape.token_tiles)};
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) init_barriers(barriers, shape.stages, 16);
  cluster.sync();

  if (warp >= 8) {
    give_registers<40>();
    if (warp == 8 && lane == 0) {
      const auto weights_of = [&](const auto& walk, int stage) {
        barrier_expect(&barriers.full[stage], Stage::kBytes);
        copy_box(stages + stage * Stage::kBytes, weight_map, walk.step * kHalf,
                 walk.tile.group * shape.rows + walk.tile.row, &barriers.full[stage]);
      };
      const auto tokens_of = [&](const auto& walk, int stage) {
        uint8_t* const to = stages + stage * Stage::kBytes + Stage::kWeightBytes;
        copy_box_to_blocks(to + rank * kN / 2 * kBoxRow, x_map,
                           walk.tile.group * shape.columns + walk.step * kHalf,
                           walk.tile.tokens + rank * kN / 2, &barriers.full[stage], 3);
      };
      fill_stages(ProductWalk{tile_of, first_item, stride, 0, 2 * shape.chunks}, items,
                  shape.stages, barriers, weights_of, tokens_of);
    }
  } else {
    take_registers<232>();
    const int group = warp / 4;  // of warps
    uint8_t* const outlet = stages + shape.stages * Stage::kBytes + group * kOutletBytes;
    Weights weights;
    if constexpr (Weights::kExpanded) {
      weights.scales.factors = reinterpret_cast<uint32_t*>(
          beyond_stages + group * ExpandingScales::bytes(scales.blocks));
    }
    const auto release = [&](int stage) {
      if (lane < 2) barrier_arrive_at(&barriers.empty[stage], static_cast<uint32_t>(lane));
    };
    StagePlace place;
    for (int item = first_item; item < items; item += stride) {
      const ProductTile tile = tile_of(item);
      const int first_row = tile.row + group * kTileRows;
      weights.start_tile(scales, tile.group * shape.rows + first_row, 1 + group);
      if (item == first_item) wait_for_inputs();
      float sums[kN / 2];
      float total[kSegmented ? kN / 2 : 1];
      int last_stage = -1, begin = 0;
      if constexpr (Weights::kExpanded) {
        barrier_wait(&barriers.full[place.stage], place.round);
        weights.template fetch<Stage::kRowBytes>(
            stages + place.stage * Stage::kBytes + group * Stage::kGroupBytes, 0);
      }
      for (int segment = 0; segment < (kSegmented ? shape.segments : 1); ++segment) {
        const auto end = static_cast<int>(segment_begin(shape.chunks, shape.segments, segment + 1));
        for (int chunk = begin; chunk < end; ++chunk) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint8_t* const stage = stages + place.stage * Stage::kBytes;
            const bool accumulate = chunk > begin || half > 0;
            StagePlace next = place;
            next.advance(shape.stages);
            if constexpr (Weights::kExpanded) {
              weights.expand(2 * chunk + half, half);
              weights.template start_half<kN>(sums, half, stage + Stage::kWeightBytes, accumulate);
              if (chunk + 1 < shape.chunks || half == 0) {
                barrier_wait(&barriers.full[next.stage], next.round);
                weights.template fetch<Stage::kRowBytes>(
                    stages + next.stage * Stage::kBytes + group * Stage::kGroupBytes, 0);
              }
            } else {
              barrier_wait(&barriers.full[place.stage], place.round);
              start_half<kN>(sums, stage + group * Stage::kGroupBytes, stage + Stage::kWeightBytes,
                             accumulate);
            }
            wgmma_wait<1>();
            if (last_stage >= 0) release(last_stage);
            last_stage = place.stage;
            place = next;
          }
        }
        begin = end;
        if constexpr (kSegmented) {
          wgmma_wait<0>();
          wgmma_hold(sums);
#pragma unroll
          for (int i = 0; i < kN / 2; ++i) total[i] = segment == 0 ? sums[i] : total[i] + sums[i];
        }
      }
      wgmma_wait<0>();
      wgmma_hold(sums);
      release(last_stage);
      if constexpr (kSegmented) {
        write_wide<kN>(shape, output, y_map, tile, first_row, outlet, 1 + group, total);
      } else {
        write_wide<kN>(shape, output, y_map, tile, first_row, outlet, 1 + group, sums);
      }
    }
    if (shape.staged && threadIdx.x % 128 == 0) wait_stores<0>();
  }
  cluster.sync();  // the other block may still copy to this one
}

}  // namespace cachalot::cuda
