// The third kernel of a product, for up to 8 tokens and FP8 weights (docs/kernels/dense_bf16.md).
//
// A warp has 16 rows of the weight for itself, over all of K: it expands them in registers and
// multiplies by mma.sync. What it waits for is its own chain of products, so nothing else is in its
// way: a fifth warp has the copy engine keep a ring of stages full, and brings all of the tokens.
//
// mma.sync has the bits of the other kernels' wgmma, and the order of the 16 K of a product changes
// nothing: a lane takes four neighbouring codes, a word, where the layout of operands has two
// pairs eight apart.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/bf16_product_few.h"
#include "backend/cuda/bf16_product_parts.cuh"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/load_matrices.h"
#include "backend/cuda/ptx/mma_bf16.h"
#include "backend/cuda/tensor_map.h"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4, kConsumers = kWarps * 32, kThreads = kConsumers + 32;
constexpr int kWarpRows = 16;
static_assert(kWarps * kWarpRows == kTileRows);

constexpr int kStep = 128;  // of K: a stage, 128 bytes a row
constexpr int kStageBytes = kTileRows * kStep;
constexpr int kStages = 8;
// More than half of a multiprocessor's. Else blocks of the next kernel come beside those of this
// one, several to some multiprocessors and none to others: wo_a takes 15.6 us instead of 10.9.
constexpr int kLeastSharedBytes = 120 << 10;
constexpr int64_t kMaxColumns = 8192;

// In shared memory, behind the stages: tokens, factors of two tiles of scales.
__host__ __device__ constexpr int token_pitch(int columns) {
  return columns * 2 + 32;  // bytes: four rows' loads meet every bank once
}

struct Few {
  const float* scales;
  const __nv_bfloat16* x;
  ProductShape shape;
  ProductOutput output;
};

// A word's codes, as a product takes them in two of its registers.
__device__ __forceinline__ void expand(uint32_t word, uint32_t factor, uint32_t& first,
                                       uint32_t& second) {
  first = times(small_bf16_pair(picked_bytes(word, word, 0x9180)), factor);
  second = times(small_bf16_pair(picked_bytes(word, word, 0xB3A2)), factor);
}

struct FewBarriers {
  Barrier full[kStages], empty[kStages], tokens_there;
};

__device__ __forceinline__ void multiply_by_warps(const CUtensorMap& weight_map, const Few& p) {
  extern __shared__ uint8_t shared[];
  __shared__ FewBarriers barriers;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = p.shape.columns, tokens = p.shape.tokens, pitch = token_pitch(columns);
  const int steps = columns / kStep, blocks = columns / 32;
  const int first_row = static_cast<int>(blockIdx.x) * kTileRows;  // among those of all groups
  const int group = first_row / p.shape.rows;
  uint8_t* const stages = aligned_to_atoms(shared);
  uint8_t* const tokens_at = stages + kStages * kStageBytes;
  auto* const factors = reinterpret_cast<uint32_t*>(tokens_at + tokens * pitch);

  const bool fetches = static_cast<int>(threadIdx.x) == kConsumers;
  const auto fetch = [&](int step, int stage) {
    barrier_expect(&barriers.full[stage], kStageBytes);
    copy_box(stages + stage * kStageBytes, weight_map, step * kStep, first_row,
             &barriers.full[stage], CacheHint::evict_first);
  };
  if (fetches) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&barriers.full[i], 1);
      barrier_init(&barriers.empty[i], kWarps);
    }
    barrier_init(&barriers.tokens_there, 1);
    fence_barrier_init();
    for (int step = 0; step < min(kStages, steps); ++step) fetch(step, step);
    let_next_start();
  }
  bool large = false;
  for (int at = static_cast<int>(threadIdx.x); at < 2 * blocks; at += kThreads) {
    const float scale = __ldg(p.scales + int64_t{first_row / 32} * blocks + at);
    factors[at] = __float_as_uint(scale);
    large |= scale > ExpandingScales::kLargest;
  }
  large = __syncthreads_or(large);
  for (int at = static_cast<int>(threadIdx.x); !large && at < 2 * blocks; at += kThreads) {
    factors[at] = ExpandingScales::factor(__uint_as_float(factors[at]));
  }
  __syncthreads();
  wait_for_inputs();
  if (warp == kWarps) {
    if (!fetches) return;
    barrier_expect(&barriers.tokens_there, static_cast<uint32_t>(tokens * columns * 2));
    for (int token = 0; token < tokens; ++token) {
      copy_bulk(tokens_at + token * pitch,
                p.x + (int64_t{token} * p.shape.groups + group) * columns,
                static_cast<uint32_t>(columns * 2), &barriers.tokens_there, CacheHint::evict_last);
    }
    StagePlace place;
    for (int step = kStages; step < steps; ++step, place.advance(kStages)) {
      barrier_wait(&barriers.empty[place.stage], place.round);
      fetch(step, place.stage);
    }
    return;
  }

  const int quad = lane % 4;
  // What lanes without a token multiply is not stored.
  const uint8_t* const x_of_lane = tokens_at + min(lane / 4, tokens - 1) * pitch + quad * 8;
  // Matrices of ldmatrix: rows 0 .. 7 and 8 .. 15 of 16 columns, then of the next 16.
  const uint32_t row_at = shared_address(stages) + (warp * kWarpRows + lane % 16) * kStep;
  uint32_t piece_at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) piece_at[i] = row_at + ((2 * i + lane / 16) ^ lane % 8) * 16;
  const uint32_t* const factors_of_warp = factors + warp * kWarpRows / 32 * blocks;
  float sums[4] = {};
  const auto add_steps = [&](auto has_large) {
    StagePlace place;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, place.advance(kStages)) {
      barrier_wait(&barriers.full[place.stage], place.round);
      uint32_t words[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_matrices(words[i], piece_at[i] + place.stage * kStageBytes);
      }
      const uint4 four = *reinterpret_cast<const uint4*>(factors_of_warp + step * 4);
      const uint32_t of_block[4] = {four.x, four.y, four.z, four.w};
      const uint8_t* const x_at = x_of_lane + step * kStep * 2;
#pragma unroll
      for (int k = 0; k < kStep / 16; ++k) {
        uint32_t pairs[4];
        const uint32_t upper = words[k / 2][k % 2 * 2], lower = words[k / 2][k % 2 * 2 + 1];
        if constexpr (!has_large.value) {
          expand(upper, of_block[k / 2], pairs[0], pairs[2]);
          expand(lower, of_block[k / 2], pairs[1], pairs[3]);
        } else {
          const float scale = __uint_as_float(of_block[k / 2]);
          expand(upper, ExpandingScales::factor(scale), pairs[0], pairs[2]);
          expand(lower, ExpandingScales::factor(scale), pairs[1], pairs[3]);
          for (uint32_t& pair : pairs) pair = times(pair, ExpandingScales::rest(scale));
        }
        const uint2 x = *reinterpret_cast<const uint2*>(x_at + k * 32);
        mma_bf16(sums, pairs, {x.x, x.y});
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(&barriers.empty[place.stage]);
    }
  };
  barrier_wait(&barriers.tokens_there, 0);
  if (large) {
    add_steps(std::true_type{});
  } else {
    add_steps(std::false_type{});
  }
  const int row = first_row % p.shape.rows + warp * kWarpRows + lane / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p.output.store(p.shape, quad * 2 + i % 2, group, row + i / 2 * 8, sums[i]);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    multiply_alone(const __grid_constant__ CUtensorMap weight_map, const Few p) {
  multiply_by_warps(weight_map, p);
}

// A block more for each row of the window that is to be written.
__global__ void __launch_bounds__(kThreads, 1)
    multiply_and_write(const __grid_constant__ CUtensorMap weight_map, const Few p,
                       const WindowWrite window, int blocks) {
  const int row = static_cast<int>(blockIdx.x) - blocks;
  if (row < 0) return multiply_by_warps(weight_map, p);
  let_next_start();
  wait_for_inputs();
  write_window_row<uint4>(window, row);
}

}  // namespace

bool fits_few(const Product& product) {
  const DenseMatrix& weight = product.weight;
  const int64_t rows = weight.rows / product.groups;
  return weight.quantized() && rows % kTileRows == 0 && weight.columns % kStep == 0 &&
         weight.columns <= kMaxColumns &&
         product_segments(product.groups, rows, weight.columns) == 1 &&
         reinterpret_cast<uintptr_t>(weight.codes.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(product.x) % 16 == 0;
}

void multiply_few(Queue& queue, const Product& product) {
  const DenseMatrix& weight = product.weight;
  const auto groups = static_cast<int>(product.groups), columns = static_cast<int>(weight.columns);
  const auto tokens = static_cast<int>(product.tokens);
  const int shared_bytes =
      1024 + kStages * kStageBytes + tokens * token_pitch(columns) + 2 * (columns / 32) * 4;
  const CUtensorMap weight_map =
      tensor_map(weight.codes.data, {.type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                     .rows = weight.rows,
                                     .columns = weight.columns,
                                     .row_bytes = weight.columns,
                                     .box_rows = kTileRows,
                                     .box_columns = kStep,
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
  const Few few{.scales = weight.scales.data,
                .x = product.x,
                .shape = {.groups = groups,
                          .rows = static_cast<int>(weight.rows) / groups,
                          .columns = columns,
                          .tokens = tokens},
                .output = {product.bias, product.y, product.y_f32}};
  const int64_t blocks = weight.rows / kTileRows;
  LaunchShape shape{.blocks = static_cast<unsigned>(blocks),
                    .threads = kThreads,
                    .shared_bytes = static_cast<size_t>(std::max(shared_bytes, kLeastSharedBytes))};
  const Bytes x{product.x, product.tokens * groups * columns * int64_t{sizeof(bf16)}};
  const int64_t results = product.tokens * weight.rows;
  const Bytes y = product.y != nullptr ? Bytes{product.y, results * int64_t{sizeof(bf16)}}
                                       : Bytes{product.y_f32, results * int64_t{sizeof(float)}};
  const auto window = queue.held().take<WriteWindowArgs>([&](const WriteWindowArgs& held) {
    return WindowWrite(held).wide && blocks + held.rows.tokens() <= queue.multiprocessors() &&
           !overlap({y}, {held.window_rows, held.ring}) && !overlap({x}, {held.ring});
  });
  if (!window) return launch(queue, product.operation, multiply_alone, shape, weight_map, few);
  shape.blocks.x += static_cast<unsigned>(window->rows.tokens());
  launch(queue, product.operation, multiply_and_write, shape, weight_map, few, WindowWrite(*window),
         static_cast<int>(blocks));
}

}  // namespace cachalot::cuda
