// What the two kernels of bf16_product.cu are made of: the stages of shared memory, the operands of
// one product in them, and where results go.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/plan/product_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/bytes.h"
#include "backend/cuda/ptx/stmatrix.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"

namespace cachalot::cuda {

constexpr int kHalf = 64;           // of a chunk: K of one box of activations, 128 bytes
constexpr int kSteps = kHalf / 16;  // products of a half
constexpr int kTileRows = 64;       // of one warpgroup
constexpr int kBoxRow = 128;        // bytes

struct ProductShape {
  int groups, rows, columns, tokens;
  int row_tiles, token_tiles;
  int chunks, segments;
  int stages;   // of shared memory
  bool staged;  // BF16 results leave through shared memory: whole tiles, in rows that fit copies
};

struct ProductOutput {
  const __nv_bfloat16* bias;
  __nv_bfloat16* y;
  float* y_f32;

  // What lies outside the matrices is dropped.
  __device__ void store(const ProductShape& shape, int token, int group, int row, float sum) const {
    if (row >= shape.rows || token >= shape.tokens) return;
    const int all_rows = shape.groups * shape.rows, of_all = group * shape.rows + row;
    const int64_t at = int64_t{token} * all_rows + of_all;
    if (y_f32 != nullptr) {
      y_f32[at] = sum;
      return;
    }
    y[at] = __float2bfloat16_rn(sum + bias_of(shape, group, row));
  }
  __device__ float bias_of(const ProductShape& shape, int group, int row) const {
    if (bias == nullptr || row >= shape.rows) return 0;
    return __bfloat162float(__ldg(bias + group * shape.rows + row));
  }
};

__device__ inline uint8_t* aligned_to_atoms(uint8_t* shared) {
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}

// The place in a ring of stages, and how often it has gone round.
struct StagePlace {
  int stage = 0;
  uint32_t round = 0;  // its lowest bit alone

  __device__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    round ^= 1;
  }
};

// Barriers of a ring of stages, in shared memory.
constexpr int kMaxStages = 32;
struct StageBarriers {
  Barrier full[kMaxStages], empty[kMaxStages];
};

// The scale tiles of the FP8 weights that one warpgroup multiplies, as factors: [3][blocks]. Three:
// 64 rows from any row on.
struct TileScales {
  const float* scales;  // [blocks of all rows, blocks]
  int row_blocks, blocks;
};

// Starts d += (64 rows of `a`) . b over one half; both are boxes of 128 bytes a row in shared
// memory.
template <int kN>
__device__ __forceinline__ void start_half(float (&d)[kN / 2], const uint8_t* a, const uint8_t* b,
                                           bool accumulate) {
  const uint64_t a_box = shared_descriptor(a, SharedLayout::swizzle_128, 8 * kBoxRow);
  const uint64_t b_box = shared_descriptor(b, SharedLayout::swizzle_128, 8 * kBoxRow);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    wgmma_bf16<kN>(d, advance_descriptor(a_box, step * 32), advance_descriptor(b_box, step * 32),
                   accumulate || step > 0);
  }
  wgmma_commit();
}

// BF16 weights lie in shared memory as products take them.
struct Bf16Weights {
  static constexpr int kBytes = 2;
  static constexpr bool kExpanded = false;

  __device__ void start_tile(const TileScales&, int, int) {}
};

// Two E4M3 codes, each with its sign in all bits above it, as BF16 times 2^-120: the four exponent
// bits and the three of the mantissa move to where BF16 has them, and signs between are cut.
// Subnormal codes become subnormal numbers, so a multiplication by 2^120 makes all of them what
// they are.
__device__ __forceinline__ uint32_t small_bf16_pair(uint32_t spread) {
  return spread << 4 & 0x87F087F0u;
}
__device__ __forceinline__ uint32_t times(uint32_t pair, uint32_t factor) {
  const __nv_bfloat162 product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair),
                                         reinterpret_cast<const __nv_bfloat162&>(factor));
  return reinterpret_cast<const uint32_t&>(product);
}

__device__ __forceinline__ uint32_t bf16_twice(float value) {
  const uint32_t bits = __float_as_uint(value) >> 16;
  return bits << 16 | bits;
}

// The scales of the 64 rows a tile takes, in shared memory: [3][blocks], since 64 rows from any row
// on lie in three tiles of scales at most; then a flag.
//
// A scale above 2^7 times 2^120 is no BF16 number: what is above goes into a second factor, for
// whole tiles that have such a scale; they have scales where others have factors.
struct ExpandingScales {
  static constexpr float kRebias = 0x1p120f, kLargest = 0x1p7f;
  static constexpr int kBlock = kScaleBlock;

  uint32_t* factors;
  int blocks;
  int first_block;
  bool large;

  static constexpr int64_t bytes(int64_t blocks) { return (3 * blocks + 1) * 4; }

  // The tile begins at `row` among the rows of all groups. A warpgroup calls; `barrier` is its own.
  __device__ void start_tile(const TileScales& tile, int row, int barrier) {
    blocks = tile.blocks;
    first_block = row / kBlock;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    uint32_t* const flag = factors + 3 * blocks;
    sync_threads_of(barrier, 128);  // nobody needs the last tile's
    if (thread == 0) *flag = 0;
    sync_threads_of(barrier, 128);
    for (int at = thread; at < 3 * blocks; at += 128) {
      const int row_block = min(first_block + at / blocks, tile.row_blocks - 1);
      const float scale = __ldg(tile.scales + int64_t{row_block} * blocks + at % blocks);
      factors[at] = __float_as_uint(scale);
      if (scale > kLargest) *flag = 1;
    }
    sync_threads_of(barrier, 128);
    large = *flag != 0;
    if (large) return;
    for (int at = thread; at < 3 * blocks; at += 128) {
      factors[at] = factor(__uint_as_float(factors[at]));
    }
    sync_threads_of(barrier, 128);
  }

  // Where the factors of a row (among those of all groups) begin.
  __device__ int row_factors(int row) const { return (row / kBlock - first_block) * blocks; }

  __device__ uint32_t factor_at(int row_factors, int block) const {
    return factors[row_factors + min(block, blocks - 1)];
  }
  __device__ static uint32_t factor(float scale) {
    return bf16_twice(fminf(scale, kLargest) * kRebias);
  }
  __device__ static uint32_t rest(float scale) { return bf16_twice(fmaxf(scale / kLargest, 1)); }
};

// FP8 weights become BF16 in registers, with their scales: powers of two, so that this is exact.
//
// A thread needs pairs of codes from its two rows, at K = 2 q and 2 q + 8 of 16 (q = lane % 4): it
// reads all 16, as its three neighbours do (one access of shared memory serves them), and takes its
// own with a byte permutation.
struct Fp8Weights {
  static constexpr int kBytes = 1;
  static constexpr bool kExpanded = true;

  ExpandingScales scales;
  int upper_factors, lower_factors;    // of the thread's two rows
  int row_at;                          // of the upper one in a box of rows of 128 bytes, swizzled
  uint4 upper[kSteps], lower[kSteps];  // fetched
  // Two sets: products read one while the next is made.
  uint32_t operands[2][kSteps][4];

  // The warpgroup's 64 rows begin at `row` among those of all groups; `barrier` is its own.
  __device__ void start_tile(const TileScales& tile, int row, int barrier) {
    scales.start_tile(tile, row, barrier);
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int upper_row = row + thread / 32 * 16 + thread % 32 / 4;
    upper_factors = scales.row_factors(upper_row);
    lower_factors = scales.row_factors(upper_row + 8);
    row_at = (upper_row - row) * kBoxRow + (upper_row - row) % 8 * 16;
  }

  // Whether expand_plain() may take the tile that begins at `row`: no factor is in two parts, both
  // rows of a thread have the same, and those of a chunk lie side by side.
  __device__ bool plain(int row) const {
    return !scales.large && row % 16 == 0 && scales.blocks % 4 == 0;
  }
  __device__ uint4 factors_of_chunk(int chunk) const {
    return reinterpret_cast<const uint4*>(scales.factors + upper_factors)[chunk];
  }
  // fetch() of both halves of a chunk, and expand() of one with the factors of its two blocks, in
  // fewer instructions, which is what a chunk takes.
  __device__ __forceinline__ void fetch_chunk(const uint8_t* a, uint4 (&upper)[2 * kSteps],
                                              uint4 (&lower)[2 * kSteps]) const {
#pragma unroll
    for (int step = 0; step < 2 * kSteps; ++step) {
      const uint8_t* const at = a + (row_at ^ step * 16);
      upper[step] = *reinterpret_cast<const uint4*>(at);
      lower[step] = *reinterpret_cast<const uint4*>(at + 8 * kBoxRow);
    }
  }
  __device__ __forceinline__ void expand_plain(const uint4 (&upper)[2 * kSteps],
                                               const uint4 (&lower)[2 * kSteps], int half,
                                               uint32_t first_factor, uint32_t second_factor) {
    const uint32_t pick = 0x1111u * (2 * (threadIdx.x % 4)) + 0x9180u;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t factor = step < kSteps / 2 ? first_factor : second_factor;
      const uint4 &up = upper[half * kSteps + step], &low = lower[half * kSteps + step];
      operands[half][step][0] = expanded(up.x, up.y, pick, factor);
      operands[half][step][1] = expanded(low.x, low.y, pick, factor);
      operands[half][step][2] = expanded(up.z, up.w, pick, factor);
      operands[half][step][3] = expanded(low.z, low.w, pick, factor);
    }
  }
  __device__ static uint32_t expanded(uint32_t low, uint32_t high, uint32_t pick, uint32_t factor) {
    return times(small_bf16_pair(picked_bytes(low, high, pick)), factor);
  }

  // Reads a half: 64 rows of kRowBytes (64 or 128, swizzled like that), of which a_half is the half
  // to take.
  template <int kRowBytes>
  __device__ __forceinline__ void fetch(const uint8_t* a, int a_half) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    // Both rows of a thread have the same swizzle: it repeats every eight rows.
    const int swizzle = kRowBytes == 128 ? row % 8 : row / 2 % 4;
    const uint8_t* const at = a + row * kRowBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int piece = ((a_half * kSteps + step) ^ swizzle) * 16;
      upper[step] = *reinterpret_cast<const uint4*>(at + piece);
      lower[step] = *reinterpret_cast<const uint4*>(at + 8 * kRowBytes + piece);
    }
  }

  // What was fetched becomes operands; `half` counts from the row's beginning in device memory.
  // Products that read `set` are done.
  __device__ __forceinline__ void expand(int half, int set) {
    // Bytes 2 q and 2 q + 1 of eight, with their signs.
    const uint32_t pick = 0x1111u * (2 * (threadIdx.x % 4)) + 0x9180u;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t factor[2] = {scales.factor_at(upper_factors, 2 * half + pair),
                            scales.factor_at(lower_factors, 2 * half + pair)};
      uint32_t rest[2];
      if (scales.large) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          rest[i] = scales.rest(__uint_as_float(factor[i]));
          factor[i] = scales.factor(__uint_as_float(factor[i]));
        }
      }
#pragma unroll
      for (int step = 2 * pair; step < 2 * pair + 2; ++step) {
        const uint32_t picked[4] = {picked_bytes(upper[step].x, upper[step].y, pick),
                                    picked_bytes(lower[step].x, lower[step].y, pick),
                                    picked_bytes(upper[step].z, upper[step].w, pick),
                                    picked_bytes(lower[step].z, lower[step].w, pick)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          operands[set][step][i] = times(small_bf16_pair(picked[i]), factor[i % 2]);
        }
      }
      if (!scales.large) continue;
#pragma unroll
      for (int step = 2 * pair; step < 2 * pair + 2; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          operands[set][step][i] = times(operands[set][step][i], rest[i % 2]);
        }
      }
    }
  }

  template <int kN>
  __device__ __forceinline__ void start_half(float (&d)[kN / 2], int set, const uint8_t* b,
                                             bool accumulate) {
    const uint64_t b_box = shared_descriptor(b, SharedLayout::swizzle_128, 8 * kBoxRow);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma_bf16<kN>(d, operands[set][step], advance_descriptor(b_box, step * 32),
                     accumulate || step > 0);
    }
    wgmma_commit();
  }
};

}  // namespace cachalot::cuda
