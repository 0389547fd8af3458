// What blocks of a narrow product do (plan/product_plan.h), in whatever kernel.
#pragma once

#include <cooperative_groups.h>

#include <type_traits>

#include "backend/cuda/bf16_product_parts.cuh"
#include "backend/cuda/plan/product_plan.h"

namespace cachalot::cuda {

constexpr int kNarrowThreads = 160;  // four warps that multiply, one that copies

__device__ inline void init_barriers(StageBarriers& barriers, int stages, uint32_t consumers) {
  for (int i = 0; i < stages; ++i) {
    barrier_init(&barriers.full[i], 1);
    barrier_init(&barriers.empty[i], consumers);
  }
  fence_barrier_init();
}

// Where a tile begins: its tokens, its rows within their group.
struct ProductTile {
  int tokens, row, group;
};

// Goes through the steps of K of a block's tiles, as the warp that fetches does.
template <class TileOf>
struct ProductWalk {
  TileOf tile_of;
  int item, stride, begin, end;
  int step = begin;
  ProductTile tile = tile_of(item);

  __device__ void advance() {
    if (++step < end) return;
    step = begin;
    item += stride;
    tile = tile_of(item);
  }
};

// Fills the ring of stages: weights_of(walk, stage) announces a stage's bytes and starts the copy
// of its weights, tokens_of(walk, stage) that of its activations.
template <bool kWaits = true, class Walk, class WeightsOf, class TokensOf>
__device__ void fill_stages(Walk walk, int items, int stages, StageBarriers& barriers,
                            WeightsOf weights_of, TokensOf tokens_of) {
  Walk behind = walk;
  int ahead = 0;
  for (; ahead < stages && walk.item < items; ++ahead, walk.advance()) weights_of(walk, ahead);
  if (kWaits) wait_for_inputs();
  for (int stage = 0; stage < ahead; ++stage, behind.advance()) tokens_of(behind, stage);
  for (StagePlace place; walk.item < items; walk.advance(), place.advance(stages)) {
    barrier_wait(&barriers.empty[place.stage], place.round);
    weights_of(walk, place.stage);
    tokens_of(walk, place.stage);
  }
  let_next_start();
}

template <class Weights, int kN>
struct NarrowStage {
  static constexpr int kWeightBytes = kTileRows * kProductChunk * Weights::kBytes;
  static constexpr int kTokenBytes = kN * kBoxRow;  // of a half
  static constexpr int kBytes = kWeightBytes + 2 * kTokenBytes;
};

// A tile's results on their way out: rows of 64 for each token, of which so many leave at once.
template <int kN>
constexpr int kNarrowOutletBytes = kN >= 16 ? kBoxRow* kN : 0;

// A tile's sums go to device memory, in full lines. By the four warps that multiply.
template <int kN>
__device__ __forceinline__ void write_narrow(const ProductShape& shape, const ProductOutput& output,
                                             const ProductTile& tile, uint8_t* outlet,
                                             const float (&sums)[kN / 2]) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int row = tile.row + warp * 16 + lane / 4;
  const float bias[2] = {output.bias_of(shape, tile.group, row),
                         output.bias_of(shape, tile.group, row + 8)};
  // As write_wide() arranges them.
  const int token_of_lane = lane / 16 * 8 + lane % 8, to_piece = 2 * warp + lane / 8 % 2;
  uint8_t* const to = outlet + token_of_lane * kBoxRow + (to_piece ^ token_of_lane % 8) * 16;
  sync_threads_of(1, 128);  // the last tile's have left
#pragma unroll
  for (int pair = 0; pair < kN / 16; ++pair) {
    uint32_t matrices[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int i = pair * 8 + m * 2;
      const __nv_bfloat162 both =
          __floats2bfloat162_rn(sums[i] + bias[m % 2], sums[i + 1] + bias[m % 2]);
      matrices[m] = reinterpret_cast<const uint32_t&>(both);
    }
    store_transposed(to + pair * 16 * kBoxRow, matrices);
  }
  sync_threads_of(1, 128);
  const int piece = thread % 8, column = tile.group * shape.rows + tile.row + piece * 8;
  const int64_t columns = int64_t{shape.groups} * shape.rows;
#pragma unroll
  for (int i = thread / 8; i < kN; i += 16) {
    const int token = tile.tokens + i;
    if (token >= shape.tokens) continue;
    *reinterpret_cast<uint4*>(output.y + token * columns + column) =
        *reinterpret_cast<const uint4*>(outlet + i * kBoxRow + (piece ^ i % 8) * 16);
  }
}

// Segments' sums meet here: [kN][kPitch]. The pitch keeps a warp's stores free of bank conflicts.
constexpr int kPartialPitch = kTileRows + 4;

// By all threads of block `block` of a product's `blocks`, of which the first kNarrowThreads work.
// Blocks of a cluster take the segments of one tile; without segments a block goes on to other
// tiles.
template <class Weights, int kN, bool kWaits = true>
__device__ __forceinline__ void multiply_narrow_tiles(
    const CUtensorMap& weight_map, const CUtensorMap& x_map, const ProductShape& shape,
    const TileScales& scales, const ProductOutput& output, int block, int blocks, uint8_t* shared) {
  using Stage = NarrowStage<Weights, kN>;
  __shared__ StageBarriers barriers;
  uint8_t* const stages = aligned_to_atoms(shared);
  uint8_t* const beyond_stages = stages + shape.stages * Stage::kBytes;

  const int segment = block % shape.segments;
  const int items = shape.groups * shape.row_tiles * shape.token_tiles;
  const int first_item = block / shape.segments;
  const int stride = blocks / shape.segments;
  const int begin = segment_begin(shape.chunks, shape.segments, segment);
  const int end = segment_begin(shape.chunks, shape.segments, segment + 1);
  const auto tile_of = [&](int item) {
    const int rows = item / shape.token_tiles;
    return ProductTile{item % shape.token_tiles * kN, rows % shape.row_tiles * kTileRows,
                       rows / shape.row_tiles};
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) init_barriers(barriers, shape.stages, 4);
  __syncthreads();

  float sums[kN / 2];
  if (warp == 4) {
    if (lane == 0) {
      const auto weights_of = [&](const auto& walk, int stage) {
        uint8_t* const to = stages + stage * Stage::kBytes;
        barrier_expect(&barriers.full[stage], Stage::kBytes);
        for (int box = 0; box < Weights::kBytes; ++box) {
          copy_box(to + box * kTileRows * kBoxRow, weight_map,
                   walk.step * kProductChunk + box * kHalf,
                   walk.tile.group * shape.rows + walk.tile.row, &barriers.full[stage],
                   CacheHint::evict_first);
        }
      };
      const auto tokens_of = [&](const auto& walk, int stage) {
        uint8_t* const to = stages + stage * Stage::kBytes + Stage::kWeightBytes;
        for (int half = 0; half < 2; ++half) {
          copy_box(to + half * Stage::kTokenBytes, x_map,
                   walk.tile.group * shape.columns + walk.step * kProductChunk + half * kHalf,
                   walk.tile.tokens, &barriers.full[stage], CacheHint::evict_last);
        }
      };
      fill_stages<kWaits>(ProductWalk{tile_of, first_item, stride, begin, end}, items, shape.stages,
                          barriers, weights_of, tokens_of);
    }
    __syncwarp();
  } else if (warp < 4) {
    Weights weights;
    if constexpr (Weights::kExpanded) {
      weights.scales.factors =
          reinterpret_cast<uint32_t*>(beyond_stages + (shape.staged ? kNarrowOutletBytes<kN> : 0));
    }
    StagePlace place;
    for (int item = first_item; item < items; item += stride) {
      const ProductTile tile = tile_of(item);
      weights.start_tile(scales, tile.group * shape.rows + tile.row, 1);
      if (kWaits && item == first_item) wait_for_inputs();
      int last_stage = -1;
      const auto release_last = [&] {
        if (last_stage >= 0 && lane == 0) barrier_arrive(&barriers.empty[last_stage]);
      };
      // kPlain: of weights that are expanded, as expand_plain() does it.
      const auto add_chunks = [&](auto plain) {
        [[maybe_unused]] constexpr bool kPlain = decltype(plain)::value;
        for (int chunk = begin; chunk < end; ++chunk) {
          barrier_wait(&barriers.full[place.stage], place.round);
          const uint8_t* const a = stages + place.stage * Stage::kBytes;
          const uint8_t* const b = a + Stage::kWeightBytes;
          [[maybe_unused]] uint4 factors, upper[2 * kSteps], lower[2 * kSteps];
          if constexpr (Weights::kExpanded) {
            if constexpr (kPlain) {
              weights.fetch_chunk(a, upper, lower);
              factors = weights.factors_of_chunk(chunk);
            }
          }
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const bool accumulate = chunk > begin || half > 0;
            const uint8_t* const b_half = b + half * Stage::kTokenBytes;
            if constexpr (Weights::kExpanded) {
              if constexpr (kPlain) {
                weights.expand_plain(upper, lower, half, half == 0 ? factors.x : factors.z,
                                     half == 0 ? factors.y : factors.w);
              } else {
                weights.template fetch<kBoxRow>(a, half);
                weights.expand(2 * chunk + half, half);
              }
              weights.template start_half<kN>(sums, half, b_half, accumulate);
            } else {
              start_half<kN>(sums, a + half * kTileRows * kBoxRow, b_half, accumulate);
            }
            wgmma_wait<1>();
            if (half == 0) release_last();  // all products but those just started are done
          }
          last_stage = place.stage;
          place.advance(shape.stages);
        }
      };
      bool plain = false;
      if constexpr (Weights::kExpanded) plain = weights.plain(tile.group * shape.rows + tile.row);
      if (Weights::kExpanded && plain) {
        add_chunks(std::bool_constant<Weights::kExpanded>{});
      } else {
        add_chunks(std::false_type{});
      }
      wgmma_wait<0>();
      wgmma_hold(sums);
      release_last();
      if (shape.segments > 1) break;
      if constexpr (kN >= 16) {
        if (shape.staged) {
          write_narrow<kN>(shape, output, tile, beyond_stages, sums);
          continue;
        }
      }
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int row = tile.row + warp * 16 + lane / 4 + i / 2 % 2 * 8;
        const int token = tile.tokens + i / 4 * 8 + lane % 4 * 2 + i % 2;
        output.store(shape, token, tile.group, row, sums[i]);
      }
    }
  }
  if (shape.segments == 1) return;

  const auto cluster = cooperative_groups::this_cluster();
  auto* const partial = reinterpret_cast<float*>(stages);
  if (warp < 4) {
    sync_threads_of(1, 128);  // all products have read the stages
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
      partial[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kPartialPitch + row] = sums[i];
    }
  }
  cluster.sync();
  const ProductTile tile = tile_of(first_item);
  const int share = kN * kTileRows / shape.segments;
  for (int i = static_cast<int>(threadIdx.x); i < share; i += static_cast<int>(blockDim.x)) {
    const int at = segment * share + i;
    float* const mine = partial + at / kTileRows * kPartialPitch + at % kTileRows;
    float sum = *cluster.map_shared_rank(mine, 0);
    for (int s = 1; s < shape.segments; ++s) sum += *cluster.map_shared_rank(mine, s);
    output.store(shape, tile.tokens + at / kTileRows, tile.group, tile.row + at % kTileRows, sum);
  }
  cluster.sync();
}

}  // namespace cachalot::cuda
