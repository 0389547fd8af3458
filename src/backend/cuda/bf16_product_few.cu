// The third kernel of a product, for up to 8 tokens and FP8 weights (docs/kernels/dense_bf16.md).
//
// A warp has 16 rows of the weight for itself, over all of K: it copies them into a ring of its
// own, expands them in registers and multiplies by mma.sync. Warps meet only for the tokens.
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
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kWarpRows = 16;
static_assert(kWarps * kWarpRows == kTileRows);

constexpr int kStep = 128;  // of K: a stage of a warp, 128 bytes a row
constexpr int kStageBytes = kWarpRows * kStep;
constexpr int kStages = 6;
// More than half of a multiprocessor's. Else blocks of the next kernel come beside those of this
// one, several to some multiprocessors and none to others: wo_a takes 15.6 us instead of 10.9.
constexpr int kLeastSharedBytes = 120 << 10;
constexpr int kSlab = 512, kSlabSteps = kSlab / kStep;  // of K: tokens that are kept at a time
constexpr int kSlabPitch = kSlab * 2 + 32;  // bytes: four rows' loads meet every bank once
constexpr int kSlabPieces = kSlab / 8;      // of 16 bytes, of a row
constexpr int kSlabLoads = static_cast<int>(kFewTokens) * kSlabPieces / kThreads;  // of a thread
// Two slabs of tokens, and factors of two tiles of scales, lie behind the stages.
constexpr int kSlabsAt = kWarps * kStages * kStageBytes;
constexpr int64_t kMaxColumns = 8192;

int slab_bytes(int tokens) { return tokens * kSlabPitch; }

struct Few {
  const uint8_t* codes;
  const float* scales;
  const uint4* x;
  ProductShape shape;
  ProductOutput output;
};

// A word's codes, as a product takes them in two of its registers.
__device__ __forceinline__ void expand(uint32_t word, uint32_t factor, uint32_t& first,
                                       uint32_t& second) {
  first = times(small_bf16_pair(picked_bytes(word, word, 0x9180)), factor);
  second = times(small_bf16_pair(picked_bytes(word, word, 0xB3A2)), factor);
}

__device__ __forceinline__ void multiply_by_warps(const Few& p) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = p.shape.columns, tokens = p.shape.tokens;
  const int steps = columns / kStep, blocks = columns / 32;
  const int first_row = static_cast<int>(blockIdx.x) * kTileRows;  // among those of all groups
  const int group = first_row / p.shape.rows;
  uint8_t* const slabs = shared + kSlabsAt;
  auto* const factors = reinterpret_cast<uint32_t*>(slabs + 2 * tokens * kSlabPitch);

  // Copies of 16 bytes: eight lanes have a row, pieces permuted so that ldmatrix meets every bank.
  const uint32_t ring = shared_address(shared) + warp * kStages * kStageBytes;
  const uint8_t* from =
      p.codes + int64_t{first_row + warp * kWarpRows + lane / 8} * columns + lane % 8 * 16;
  const uint32_t to = ring + lane / 8 * kStep + (lane % 8 ^ lane / 8) * 16;
  const auto fetch = [&](int step, int stage) {
    if (step < steps) {
      const uint32_t at = to + stage * kStageBytes;
#pragma unroll
      for (int i = 0; i < kWarpRows / 4; ++i) {
        copy_16_of_line((at ^ i % 2 * 64) + i * 4 * kStep, from + i * 4 * columns);
      }
      from += kStep;
    }
    commit_copies();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step, step);
  let_next_start();

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
  wait_for_inputs();

  // Tokens come through registers, one slab ahead.
  uint4 coming[kSlabLoads];
  const uint4* x_from = p.x + group * (columns / 8) + threadIdx.x % kSlabPieces;
  const int token_pieces = p.shape.groups * columns / 8;
  const int first_token = static_cast<int>(threadIdx.x) / kSlabPieces;
  const auto load_slab = [&] {
#pragma unroll
    for (int i = 0; i < kSlabLoads; ++i) {
      const int token = first_token + i * (kThreads / kSlabPieces);
      if (token < tokens) coming[i] = __ldcg(x_from + int64_t{token} * token_pieces);
    }
    x_from += kSlabPieces;
  };
  const auto keep_slab = [&](uint8_t* slab) {
#pragma unroll
    for (int i = 0; i < kSlabLoads; ++i) {
      const int token = first_token + i * (kThreads / kSlabPieces);
      if (token >= tokens) break;
      *reinterpret_cast<uint4*>(slab + token * kSlabPitch + threadIdx.x % kSlabPieces * 16) =
          coming[i];
    }
  };
  load_slab();

  const int quad = lane % 4;
  // What lanes without a token multiply is not stored.
  const uint8_t* const tokens_at = slabs + min(lane / 4, tokens - 1) * kSlabPitch + quad * 8;
  // Matrices of ldmatrix: rows 0 .. 7 and 8 .. 15 of 16 columns, then of the next 16.
  const uint32_t row_at = ring + lane % 16 * kStep;
  const int column_of_lane = lane / 16, swizzle = lane % 8;
  const uint32_t* const factors_of_warp = factors + warp * kWarpRows / 32 * blocks;
  float sums[4] = {};
  const auto add_steps = [&](auto has_large) {
    int stage = 0, slab = 0;
    for (int step = 0; step < steps; slab ^= 1) {
      const int slab_offset = slab * tokens * kSlabPitch;
      keep_slab(slabs + slab_offset);
      __syncthreads();
      if (step + kSlabSteps < steps) load_slab();
#pragma unroll 1
      for (int in_slab = 0; in_slab < kSlabSteps; ++in_slab, ++step) {
        wait_copies<kStages - 2>();
        __syncwarp();
        uint32_t words[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          load_matrices(words[i],
                        row_at + stage * kStageBytes + ((2 * i + column_of_lane) ^ swizzle) * 16);
        }
        // The stage that the last step left.
        fetch(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
        if (++stage == kStages) stage = 0;
        const uint4 four = *reinterpret_cast<const uint4*>(factors_of_warp + step * 4);
        const uint32_t of_block[4] = {four.x, four.y, four.z, four.w};
        const uint8_t* const x_at = tokens_at + slab_offset + in_slab * kStep * 2;
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
      }
    }
  };
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

__global__ void __launch_bounds__(kThreads, 2) multiply_alone(const Few p) { multiply_by_warps(p); }

// A block more for each row of the window that is to be written.
__global__ void __launch_bounds__(kThreads, 2)
    multiply_and_write(const Few p, const WindowWrite window, int blocks) {
  const int row = static_cast<int>(blockIdx.x) - blocks;
  if (row < 0) return multiply_by_warps(p);
  let_next_start();
  wait_for_inputs();
  write_window_row<uint4>(window, row);
}

}  // namespace

bool fits_few(const Product& product) {
  const DenseMatrix& weight = product.weight;
  const int64_t rows = weight.rows / product.groups;
  return weight.quantized() && rows % kTileRows == 0 && weight.columns % kSlab == 0 &&
         weight.columns <= kMaxColumns &&
         product_segments(product.groups, rows, weight.columns) == 1 &&
         reinterpret_cast<uintptr_t>(weight.codes.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(product.x) % 16 == 0;
}

void multiply_few(Queue& queue, const Product& product) {
  const DenseMatrix& weight = product.weight;
  const auto groups = static_cast<int>(product.groups), columns = static_cast<int>(weight.columns);
  const auto tokens = static_cast<int>(product.tokens);
  const int shared_bytes = kSlabsAt + 2 * slab_bytes(tokens) + 2 * (columns / 32) * 4;
  const Few few{.codes = weight.codes.data,
                .scales = weight.scales.data,
                .x = reinterpret_cast<const uint4*>(product.x),
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
  if (!window) return launch(queue, product.operation, multiply_alone, shape, few);
  shape.blocks.x += static_cast<unsigned>(window->rows.tokens());
  launch(queue, product.operation, multiply_and_write, shape, few, WindowWrite(*window),
         static_cast<int>(blocks));
}

}  // namespace cachalot::cuda
