// What a block of dense_fp8_few.cu does with one step of 128 columns, in two ways: the weight's
// rows or the rows of x ("tokens" here) as the 64 rows (M) of a warpgroup's product. Both give the
// same bits. For .cu files.
#pragma once

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {

// Where a step lies in shared memory, and the scales of its operands.
struct FewStep {
  const uint8_t *weight, *tokens;
  // Of the first 32 rows of the weight, of the next ones `next_tile` further on.
  const float4* tile_scales;
  int next_tile;
  const uint32_t* token_scales;
};

// Sums are kept as fragments of four floats a thread. A warp's fragment is 16 rows by 8 columns of
// M by N; unit() numbers those of a block so that equal rows of the weight are neighbours.

// Consumer warpgroups, of 64 weight rows each.
template <int kGroups_>
struct FewGroups {
  static constexpr int kGroups = kGroups_, kWarps = 4 * kGroups, kTileRows = 64 * kGroups;
  static constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 32;
};

// Up to 16 tokens: the weight is M. A thread has two rows of the weight, in one tile.
template <int kTokens_, int kGroups = 2>
struct WeightTimesTokens : FewGroups<kGroups> {
  static constexpr bool kTokensAreM = false;
  static constexpr int kTokens = kTokens_;
  static constexpr int kFragments = kTokens / 8;
  static constexpr int kUnits = 4 * kGroups * kFragments;

  __device__ static int unit(int warp, int fragment) { return warp * kFragments + fragment; }
  __device__ static int row(int unit, int i) {
    return unit / kFragments * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
  }
  __device__ static int token(int unit, int i) {
    return unit % kFragments * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
  }

  // `read` is called when the step's shared memory has been read.
  template <class Read>
  __device__ static void add(const FewStep& step, int group, float (&sums)[4 * kFragments],
                             Read read) {
    const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const uint64_t weight =
        shared_descriptor(step.weight + group * 64 * kStepColumns, SharedLayout::swizzle_128, 1024);
    const uint64_t x = shared_descriptor(step.tokens, SharedLayout::swizzle_128, 1024);
    // Before the products: while they read shared memory it serves nobody else.
    const float4 tile_scales = step.tile_scales[(group * 2 + warp / 2) * step.next_tile];
    uint2 codes[kFragments];
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      codes[j] = reinterpret_cast<const uint2*>(step.token_scales)[4 * j + quad];
    }
    // All of a step's products are in the tensor cores at a time, and added one after the other.
    float products[kStepBlocks][4 * kFragments];
    wgmma_fence();
#pragma unroll
    for (int block = 0; block < kStepBlocks; ++block) {
      wgmma_fp8(products[block], advance_descriptor(weight, block * 32),
                advance_descriptor(x, block * 32), false);
      wgmma_commit();
    }
    const auto add = [&](int block) {
      wgmma_hold(products[block]);
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
        const float low = block_scale(codes[j].x, block) * at(tile_scales, block);
        const float high = block_scale(codes[j].y, block) * at(tile_scales, block);
        const float* d = &products[block][4 * j];
        float* sum = &sums[4 * j];
        sum[0] = add_block(sum[0], d[0], low);
        sum[1] = add_block(sum[1], d[1], high);
        sum[2] = add_block(sum[2], d[2], low);
        sum[3] = add_block(sum[3], d[3], high);
      }
    };
    static_assert(kStepBlocks == 4);
    wgmma_wait<3>();
    add(0);
    wgmma_wait<2>();
    add(1);
    wgmma_wait<1>();
    add(2);
    wgmma_wait<0>();
    read();
    add(3);
  }
};

// Up to 64 tokens: they are M. A thread has two tokens and 16 rows of the weight in two tiles, so a
// block's 32 results share four products of scales.
template <int kGroups = 2>
struct TokensTimesWeight : FewGroups<kGroups> {
  using FewGroups<kGroups>::kWarps;
  static constexpr bool kTokensAreM = true;
  static constexpr int kTokens = 64;
  static constexpr int kFragments = 8;
  static constexpr int kUnits = kWarps * kFragments;

  __device__ static int unit(int warp, int fragment) {
    return (warp / 4 * kFragments + fragment) * 4 + warp % 4;
  }
  __device__ static int row(int unit, int i) {
    return unit / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
  }
  __device__ static int token(int unit, int i) {
    return unit % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
  }

  template <class Read>
  __device__ static void add(const FewStep& step, int group, float (&sums)[4 * kFragments],
                             Read read) {
    const uint64_t weight =
        shared_descriptor(step.weight + group * 64 * kStepColumns, SharedLayout::swizzle_128, 1024);
    const uint64_t x = shared_descriptor(step.tokens, SharedLayout::swizzle_128, 1024);
    const float4 tile_scales[2] = {step.tile_scales[group * 2 * step.next_tile],
                                   step.tile_scales[(group * 2 + 1) * step.next_tile]};
    const int first_token = token(static_cast<int>(threadIdx.x) / 32 % 4, 0);
    const uint32_t codes[2] = {step.token_scales[first_token], step.token_scales[first_token + 8]};
    // Two blocks fit a multiprocessor with one set of these: one adds while others multiply.
    float products[4 * kFragments];
#pragma unroll
    for (int block = 0; block < kStepBlocks; ++block) {
      wgmma_fence();
      wgmma_fp8(products, advance_descriptor(x, block * 32), advance_descriptor(weight, block * 32),
                false);
      wgmma_commit();
      float low[2], high[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        low[i] = block_scale(codes[0], block) * at(tile_scales[i], block);
        high[i] = block_scale(codes[1], block) * at(tile_scales[i], block);
      }
      wgmma_wait<0>();
      wgmma_hold(products);
      if (block == kStepBlocks - 1) read();
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
        const float* d = &products[4 * j];
        float* sum = &sums[4 * j];
        sum[0] = add_block(sum[0], d[0], low[j / 4]);
        sum[1] = add_block(sum[1], d[1], low[j / 4]);
        sum[2] = add_block(sum[2], d[2], high[j / 4]);
        sum[3] = add_block(sum[3], d[3], high[j / 4]);
      }
    }
  }
};

}  // namespace cachalot::cuda
