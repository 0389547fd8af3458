// What a block of dense_fp8_few.cu does. It takes a tile of 128 weight rows and one chunk of the
// columns: one thread brings steps of 128 columns into a ring of stages, each consumer warpgroup
// multiplies 64 of the weight rows. The chunks of a tile are the blocks of a cluster: each adds a
// share of the tile, to which the others send their sums. For .cu files.
#pragma once

#include "backend/cuda/dense_fp8_few_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/plan/packed_keys.h"
#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/ptx/remote_copy.h"
#include "backend/cuda/quantize_fp8.cuh"
#include "backend/cuda/rotary.h"
#include "backend/cuda/row_norm.cuh"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {

// So that a block of the next kernel fits beside and fetches weights while this one ends.
inline constexpr int kFewSharedBytes = 112 << 10;
// Of high tiles, of which a multiprocessor has one; and of those of many tokens.
inline constexpr int kHighSharedBytes = 150 << 10, kHighTokensSharedBytes = 180 << 10;
inline constexpr int kFewBlocksAtOnce = 2;
// Stages of a block that are on their way at a time, before it has x.
inline constexpr int kInFlight = 2;
// Tiles of a weight whose norm the kernel applies: one to a lane.
inline constexpr int kMaxNormTiles = 32;

// Pairs of channels at the end of each head turn (rotary.h).
struct Turning {
  const int32_t* positions;  // [tokens], there before the step's first kernel
  const float* frequencies;  // [pairs]
  int head_dim, pairs;
  uint8_t* packed = nullptr;  // where one token's are packed too (plan/packed_keys.h)
};

struct Few {
  CUtensorMap weight, tile_scales, x, x_scales, y_boxes;
  const uint4* x_values;  // [tokens, columns] BF16, where the kernel quantizes
  int columns;
  int tokens, out;
  int steps, most_steps;  // of a row; of the longest chunk
  int chunks_log, tiles, stages;
  __nv_bfloat16* y;
  const __nv_bfloat16* bias;
  // Where the kernel applies the norm: all blocks run at a time.
  const __nv_bfloat16* norm;
  float norm_eps;
  // Zero between operations: how many blocks have read, and sums of squares, [tokens, tiles].
  uint32_t* norm_sums;
  // Where the rows of y are heads whose last channels are turned.
  Turning turning;
  // The next kernel starts only when all blocks have waited: what is before this kernel has ended.
  bool late;
};

// What becomes of a tile's sums.
enum class Ending {
  rounded,
  normed,  // rounded, then normed over all of y's row
  turned,  // rounded, then each head's last channels turned by the token's position
};

// What a chunk's block adds of a tile: units first(chunk) .. first(chunk + 1). Where the norm is
// applied, the first block all of them.
template <class Product, Ending ending>
struct Shares {
  static constexpr bool kNorm = ending == Ending::normed;

  int chunks_log;

  __device__ int first(int chunk) const {
    if (kNorm) return chunk == 0 ? 0 : Product::kUnits;
    return chunk * Product::kUnits >> chunks_log;
  }
  __device__ int owner(int unit) const {
    return kNorm ? 0 : unit / (Product::kUnits >> chunks_log);
  }
  // Units of the largest share.
  __host__ __device__ int most() const {
    return kNorm ? Product::kUnits : Product::kUnits >> chunks_log;
  }
  __host__ __device__ int bytes() const {
    return chunks_log == 0 ? 0 : (most() << chunks_log) * 32 * static_cast<int>(sizeof(float4));
  }
};

// Where things lie in shared memory. With kQuantizes the block quantizes its columns of x itself,
// and keeps them: one kernel less to wait for. Else x comes with the weight's steps. Scales come at
// once, for as many steps as the longest chunk has.
template <class Product, bool kQuantizes>
struct Layout {
  static constexpr int kTokens = Product::kTokens;
  static constexpr int kWeightBytes = Product::kTileRows * kStepColumns;
  static constexpr int kTileScales = Product::kTileRows / 32;  // of a block of 32 columns
  static constexpr int kTokenBytes = kTokens * kStepColumns;
  static constexpr uint32_t kStageBytes = kWeightBytes + (kQuantizes ? 0 : kTokenBytes);

  int stages;
  int kept_at, token_scales_at, tile_scales_at, received_at, barriers_at;
  int bytes;

  __host__ __device__ Layout(int steps, int stages, int received) : stages(stages) {
    kept_at = stages * static_cast<int>(kStageBytes);
    token_scales_at = kept_at + (kQuantizes ? steps * kTokenBytes : 0);
    tile_scales_at = (token_scales_at + steps * kTokens * 4 + 127) / 128 * 128;
    received_at = tile_scales_at + kTileScales * steps * static_cast<int>(sizeof(float4));
    barriers_at = received_at + received;
    bytes = 1024 + barriers_at + 1024;
  }
};

template <class Product, bool kQuantizes, Ending ending>
class FewBlock {
  using L = Layout<Product, kQuantizes>;
  static constexpr bool kNorm = ending == Ending::normed, kTurns = ending == Ending::turned;

 public:
  // `block`: of this product's, one behind the other by tile and chunk.
  __device__ FewBlock(const Few& p, int block, uint8_t* shared)
      : p_(p),
        shares_{p.chunks_log},
        chunk_(block & ((1 << p.chunks_log) - 1)),
        tile_(block >> p.chunks_log),
        first_step_(chunk_ * p.steps >> p.chunks_log),
        steps_(((chunk_ + 1) * p.steps >> p.chunks_log) - first_step_),
        first_token_(static_cast<int>(blockIdx.y) * Product::kTokens) {
    const L layout(p.most_steps, p.stages, shares_.bytes());
    const uint32_t at = shared_address(shared);
    stages_ = shared + (1024 - at % 1024) % 1024;
    kept_ = stages_ + layout.kept_at;
    token_scales_ = reinterpret_cast<uint32_t*>(stages_ + layout.token_scales_at);
    tile_scales_ = reinterpret_cast<float4*>(stages_ + layout.tile_scales_at);
    received_ = reinterpret_cast<float4*>(stages_ + layout.received_at);
    full_ = reinterpret_cast<Barrier*>(stages_ + layout.barriers_at);
    empty_ = full_ + p.stages;
    parts_ = empty_ + p.stages;
    squares_ = reinterpret_cast<float*>(parts_ + 1);
    divisors_ = squares_ + 8 * 8;
  }

  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < p_.stages; ++i) {
        barrier_init(&full_[i], 1);
        barrier_init(&empty_[i], Product::kWarps);
      }
      barrier_init(parts_, 1);
      fence_barrier_init();
      if (p_.chunks_log > 0) expect_parts();
    }
    __syncthreads();
    if (p_.chunks_log > 0) cluster_arrive();
  }
  __device__ void meet_cluster() const {
    if (p_.chunks_log > 0) cluster_wait();
  }

  // One thread. What of the weight fits into the stages is fetched before x is there, a few of them
  // at a time where the block quantizes x itself: behind all that all blocks have room for, 29 MB,
  // x would wait, and so would the instructions that it is quantized by.
  __device__ void produce() const {
    const int ahead = min(steps_, p_.stages);
    constexpr uint32_t kScaleBytes =
        L::kTileScales * sizeof(float4) + (kQuantizes ? 0 : Product::kTokens * sizeof(uint32_t));
#pragma unroll 1
    for (int step = 0; step < ahead; ++step) {
      if (kQuantizes && step >= kInFlight) barrier_wait(&full_[step - kInFlight], 0);
      barrier_expect(&full_[step], L::kStageBytes + (step == 0 ? p_.most_steps * kScaleBytes : 0));
      bring_weight(step, step);
      if (step == 0) {
        copy_box(tile_scales_, p_.tile_scales, first_step_ * kStepBlocks, tile_ * L::kTileScales,
                 &full_[0]);
      }
    }
    if (!kQuantizes) {
      wait_for_inputs();
      copy_box(token_scales_, p_.x_scales, first_token_, first_step_, &full_[0]);
#pragma unroll 1
      for (int step = 0; step < ahead; ++step) bring_x(step, step);
    }
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int step = ahead; step < steps_; ++step) {
      barrier_wait(&empty_[stage], parity);
      barrier_expect(&full_[stage], L::kStageBytes);
      bring_weight(step, stage);
      if (!kQuantizes) bring_x(step, stage);
      if (++stage == p_.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    // Only weights, if x is not brought here.
    if (kQuantizes) wait_for_inputs();
  }

  __device__ void consume() {
    if (kNorm && chunk_ == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row =
            tile_ * Product::kTileRows + Product::row(static_cast<int>(threadIdx.x) / 32, 2 * i);
        if (row < p_.out) norm_[i] = __bfloat162float(p_.norm[row]);
      }
    }
    if constexpr (kTurns) find_turns();
    wait_for_inputs();
    if (p_.late) let_next_start();
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (kQuantizes) quantize();
    int stage = 0, parity = 0;
    float sums[4 * Product::kFragments] = {};
    for (int step = 0; step < steps_; ++step) {
      const uint8_t* from = stages_ + stage * L::kStageBytes;
      barrier_wait(&full_[stage], parity);
      Product::add({.weight = from,
                    .tokens = kQuantizes ? kept_ + step * L::kTokenBytes : from + L::kWeightBytes,
                    .tile_scales = tile_scales_ + step,
                    .next_tile = p_.most_steps,
                    .token_scales = token_scales_ + step * Product::kTokens},
                   group, sums, [&] {
                     if (threadIdx.x % 32 == 0) barrier_arrive(&empty_[stage]);
                   });
      if (++stage == p_.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    finish(sums);
  }

 private:
  __device__ void bring_weight(int step, int stage) const {
    copy_box(stages_ + stage * L::kStageBytes, p_.weight, (first_step_ + step) * kStepColumns,
             tile_ * Product::kTileRows, &full_[stage],
             gridDim.y == 1 ? CacheHint::evict_first : CacheHint::evict_normal);
  }
  __device__ void bring_x(int step, int stage) const {
    copy_box(stages_ + stage * L::kStageBytes + L::kWeightBytes, p_.x,
             (first_step_ + step) * kStepColumns, first_token_, &full_[stage],
             CacheHint::evict_last);
  }

  // Keeps the chunk's steps of x as the copy engine would have brought them. All consumers take
  // part: 8 columns each, four neighbours a group.
  __device__ void quantize() const {
    constexpr int kAhead = 4;  // loads of a thread before the first is used
    // Rows that x does not have stay what they are: their results are not stored.
    const int per_row = steps_ * (kStepColumns / 8), count = p_.tokens * per_row;
    const int row_loads = p_.columns / 8, first_load = first_step_ * (kStepColumns / 8);
    for (int begin = 0; begin < count; begin += kAhead * Product::kConsumers) {
      uint4 packed[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int item = begin + i * Product::kConsumers + static_cast<int>(threadIdx.x);
        const int token = item / per_row;
        packed[i] =
            item < count ? p_.x_values[token * row_loads + first_load + item % per_row] : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int item = begin + i * Product::kConsumers + static_cast<int>(threadIdx.x);
        if (begin + i * Product::kConsumers >= count) break;
        const EightCodes eight = quantize_eight(packed[i]);
        if (item >= count) continue;
        const int token = item / per_row, column = item % per_row * 8;
        const int step = column / kStepColumns, in_step = column % kStepColumns;
        *reinterpret_cast<uint2*>(kept_ + step * L::kTokenBytes + token * kStepColumns +
                                  (in_step / 16 ^ token % 8) * 16 + in_step % 16) = eight.codes;
        if (in_step % 32 == 0) {
          reinterpret_cast<uint8_t*>(&token_scales_[step * L::kTokens + token])[in_step / 32] =
              static_cast<uint8_t>(eight.scale);
        }
      }
    }
    fence_shared_for_async();
    meet();
  }

  // The consumers of a block meet.
  __device__ static void meet() { sync_threads_of(1, Product::kConsumers); }

  // Whether this lane's sums are of tokens.
  __device__ bool has_tokens() const {
    return Product::kTokens > 8 || Product::token(0, 0) < p_.tokens;
  }
  __device__ void expect_parts() const {
    const int lanes = Product::kTokens > 8 ? 32 : 8 * min(4, (p_.tokens + 1) / 2);
    const int units = shares_.first(chunk_ + 1) - shares_.first(chunk_);
    barrier_expect(parts_,
                   static_cast<uint32_t>((units << p_.chunks_log) * lanes * sizeof(float4)));
  }

  // This block's sums, or its share of those of its cluster, go where they belong.
  __device__ void finish(float (&sums)[4 * Product::kFragments]) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto fragment = [&](int j) {
      return float4{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    };
    if (p_.chunks_log == 0) {
      if constexpr (Product::kTokensAreM) {
        write_tile(sums);
      } else {
#pragma unroll
        for (int j = 0; j < Product::kFragments; ++j) {
          if constexpr (kTurns) {
            write_turned(fragment(j));
          } else {
            write(Product::unit(warp, j), fragment(j));
          }
        }
      }
      return;
    }
    meet_cluster();
    if (has_tokens()) {
#pragma unroll
      for (int j = 0; j < Product::kFragments; ++j) {
        const int unit = Product::unit(warp, j), owner = shares_.owner(unit);
        const int place = chunk_ * shares_.most() + unit - shares_.first(owner);
        store_counted(address_in_block(received_ + place * 32 + lane, owner), fragment(j),
                      address_in_block(parts_, owner));
      }
    }
    const int first = shares_.first(chunk_), count = shares_.first(chunk_ + 1) - first;
    if (count == 0) return;
    barrier_wait_for_cluster(parts_, 0);
    float4 total{};
    for (int unit = warp; unit < count; unit += Product::kWarps) {
      total = {kNothing, kNothing, kNothing, kNothing};
#pragma unroll 8
      for (int chunk = 0; chunk < 1 << p_.chunks_log; ++chunk) {
        const float4 part = received_[(chunk * shares_.most() + unit) * 32 + lane];
        total.x += part.x;
        total.y += part.y;
        total.z += part.z;
        total.w += part.w;
      }
      if constexpr (ending == Ending::rounded) write(first + unit, total);
    }
    if constexpr (kNorm) normalize(total);
  }

  // A warpgroup's whole results, through the first stage: full lines of y, where write() writes 16
  // bytes of each.
  __device__ void write_tile(float (&sums)[4 * Product::kFragments]) const {
    meet();
    const int group = static_cast<int>(threadIdx.x) / 128;
    write_results<kBoxColumns>(p_.y_boxes, stages_ + group * kBoxBytes, first_token_,
                               tile_ * Product::kTileRows + group * kBoxColumns, p_.out, p_.bias,
                               meet, sums);
    if (threadIdx.x % 128 == 0) wait_stores<0>();
  }

  __device__ void write(int unit, const float4& sums) const {
    const float four[4] = {sums.x, sums.y, sums.z, sums.w};
    // Neighbours of a token where tokens are M, which the weight has both or neither of.
    constexpr int kTogether = Product::kTokensAreM ? 2 : 1;
#pragma unroll
    for (int i = 0; i < 4; i += kTogether) {
      const int row = tile_ * Product::kTileRows + Product::row(unit, i);
      const int token = first_token_ + Product::token(unit, i);
      if (row >= p_.out || token >= p_.tokens) continue;
      __nv_bfloat16* to = p_.y + int64_t{token} * p_.out + row;
      if constexpr (kTogether == 2) {
        *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(
            with_bias(four[i], p_.bias, row), with_bias(four[i + 1], p_.bias, row + 1));
      } else {
        *to = __float2bfloat16_rn(with_bias(four[i], p_.bias, row));
      }
    }
  }

  // Of pairs of channels, one of which is in this lane's row, and the other in the row beside it.
  // Before the inputs are there.
  __device__ void find_turns() {
    const Turning& turning = p_.turning;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = Product::token(0, i), channel = turned_channel(i);
      if (channel >= 0 && token < p_.tokens)
        turns_[i] = turn_at(turning.positions[token], turning.frequencies[channel / 2]);
    }
  }
  // Among those of its head that turn; negative: it does not.
  __device__ int turned_channel(int i) const {
    const Turning& turning = p_.turning;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return (tile_ * Product::kTileRows + Product::row(warp, i)) % turning.head_dim -
           (turning.head_dim - 2 * turning.pairs);
  }
  // What prepare_query makes of rounded sums. A warp has one unit, rows four lanes apart.
  __device__ void write_turned(const float4& sums) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const float four[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float value = rounded_to_bf16(four[i]);
      const float other = __shfl_xor_sync(~0u, value, 4);
      const int row = tile_ * Product::kTileRows + Product::row(warp, i),
                token = Product::token(0, i);
      if (turned_channel(i) >= 0) {
        value = row % 2 == 0 ? rotate_pair(value, other, turns_[i].x, turns_[i].y).x
                             : rotate_pair(other, value, turns_[i].x, turns_[i].y).y;
      }
      if (row >= p_.out || token >= p_.tokens) continue;
      const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
      p_.y[int64_t{token} * p_.out + row] = rounded;
      const Turning& turning = p_.turning;
      if (turning.packed != nullptr) {
        *reinterpret_cast<__nv_bfloat16*>(
            turning.packed + PackedKeys::query(row / turning.head_dim, row % turning.head_dim)) =
            rounded;
      }
    }
  }

  // The same as row_norm.cu does to a row. All consumers of the first block of each cluster come, a
  // warp with 16 rows of the weight. They tell the other clusters their sums of squares through
  // memory: a word that is not zero is there.
  __device__ void normalize(const float4& total) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int row = tile_ * Product::kTileRows + Product::row(warp, 0), quad = lane % 4;
    uint32_t* const tile_sums = p_.norm_sums + 1;
    const float four[4] = {total.x, total.y, total.z, total.w};
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = row + i / 2 * 8;
      values[i] = at < p_.out
                      ? __bfloat162float(__float2bfloat16_rn(with_bias(four[i], p_.bias, at)))
                      : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = square_pair(values[i], values[i + 2]);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
      }
      if (lane < 4) squares_[warp * 8 + quad * 2 + i] = sum;
    }
    meet();
    if (warp < p_.tokens) {
      float sum = squares_[lane % 8 * 8 + warp];
#pragma unroll
      for (int distance = 1; distance < 8; distance *= 2) {
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
      }
      volatile uint32_t* const of_token = tile_sums + warp * p_.tiles;
      if (lane == 0) of_token[tile_] = __float_as_uint(sum) | 0x80000000u;
      uint32_t word;
      do {
        word = lane < p_.tiles ? of_token[lane] : 0x80000000u;
      } while (!__all_sync(~0u, word != 0));
      sum = 0;
      for (int i = 0; i < p_.tiles; i += 4) {
        const uint32_t from = __shfl_sync(~0u, word, lane % 4 + i);
        sum = __fadd_rn(sum, __uint_as_float(from & 0x7FFFFFFFu));
      }
      const float divisor = norm_divisor<1, 2>(sum, p_.out, p_.norm_eps);
      if (lane == 0) divisors_[warp] = divisor;
    }
    meet();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = quad * 2 + i % 2, at = row + i / 2 * 8;
      if (token >= p_.tokens || at >= p_.out) continue;
      p_.y[int64_t{token} * p_.out + at] =
          __float2bfloat16_rn(normalized(values[i], norm_[i / 2], divisors_[token]));
    }
    // The last block to have read leaves zeros behind.
    if (warp != 0) return;
    uint32_t before = 0;
    if (lane == 0) before = atomicAdd(p_.norm_sums, 1);
    if (static_cast<int>(__shfl_sync(~0u, before, 0)) != p_.tiles - 1) return;
    for (int i = lane; i < p_.tokens * p_.tiles; i += 32) tile_sums[i] = 0;
    if (lane == 0) *p_.norm_sums = 0;
  }

  const Few& p_;
  const Shares<Product, ending> shares_;
  const int chunk_, tile_, first_step_, steps_, first_token_;
  uint8_t *stages_, *kept_;
  uint32_t* token_scales_;  // [steps, kTokens], a step's four E8M0 codes
  float4* tile_scales_;     // [kTileScales, steps], of a step's four blocks
  float4* received_;        // [chunks, units of the largest share, 32]
  Barrier *full_, *empty_, *parts_;
  float norm_[2] = {};          // of the rows that a warp of the first block normalizes
  float *squares_, *divisors_;  // [units, tokens], [tokens]
  float2 turns_[4] = {};        // of this lane's sums
};

// Blocks of a cluster call alike.
template <class Product, bool kQuantizes, Ending ending>
__device__ void multiply_tile(const Few& p, int index, uint8_t* shared) {
  FewBlock<Product, kQuantizes, ending> block(p, index, shared);
  block.start();
  if (!p.late) let_next_start();
  if (threadIdx.x < Product::kConsumers) {
    block.consume();
  } else {
    if (threadIdx.x % 32 == 0) {
      block.produce();
    } else {
      wait_for_inputs();
    }
    __syncwarp();
    block.meet_cluster();
  }
}

}  // namespace cachalot::cuda
