// hyper_collapse of many tokens (docs/kernels/hyper_connections.md).
//
// A cluster of 8 blocks takes tiles of 64 tokens, a block one slice of them. Stream and fn come
// chunk by chunk through a ring in shared memory; x before its norm stays there until the cluster
// knows its square. 16 warps, one for each part of the slice's sums.
#include <cooperative_groups.h>

#include <algorithm>

#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/hyper_coefficients.h"
#include "backend/cuda/hyper_collapse_order.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {
namespace {

using namespace collapse_order;
namespace cg = cooperative_groups;

constexpr int kTokens = 64, kWarps = kParts, kThreads = 32 * kWarps;
static_assert(kThreads == kTokens * kEighths);
// Every lane of a warp has so many tokens and mixes. 8 and 6 would want less of shared memory, but
// widen twice as many values and took 14 % longer.
constexpr int kLaneTokens = 4, kLaneMixes = 12;
constexpr int kTokenGroups = kTokens / kLaneTokens, kMixGroups = kMixes / kLaneMixes;
static_assert(kTokenGroups * kMixGroups == 32);
// Rows of fn start 4 banks apart, so that the lanes of four groups of mixes read 16 bytes each at
// once.
constexpr int kFnRow = kCopies * kChunk + 4;
// While one stage is worked on the other one is filled.
constexpr int kStages = 2, kStageChunks = 2, kSteps = kChunks / kStageChunks;
// Lane's sums that all warps lay down at a time to be added: what a stage has room for.
constexpr int kRound = 12, kRounds = kLaneTokens * kLaneMixes / kRound;
// Tokens of a tile whose coefficients a block computes, and for how many it waits to do so: a
// thread each, and one warp of threads takes no longer than one thread.
constexpr int kOwned = kTokens / kSlices, kMostPending = 32;

struct Chunk {
  // Unit u of a token's chunk lies at u ^ (token / 2 % 4): eight tokens' units in all banks.
  uint4 stream[kCopies][kTokens][4];
  float fn[kMixes][kFnRow];
};
static_assert(sizeof(Chunk) * kStageChunks >= sizeof(float) * kWarps * kRound * 32);

struct Shared {
  Chunk stages[kStages][kStageChunks];
  uint4 x[kTokens][kSlice / kUnit];
  uint4 norm[kSlice / kUnit];
  // What the cluster found: product and stream's square of this block's tokens, x's square of all
  // tokens.
  float products[kSlices][kOwned][kMixes + 1];
  float x_squares[kTokens][kSlices];
  float inverse_root[kTokens];
  float base[kMixes], scale[3];
  alignas(16) float pending[kMostPending][20];  // 16, in all banks
  int pending_token[kMostPending];
};

class Block {
 public:
  __device__ Block(const Collapse& args, Shared& shared) : args_(args), shared_(shared) {}
  __device__ void run();

 private:
  __device__ int64_t first_token(int tile) const {
    return (cluster_index_ + int64_t{tile} * clusters_) * kTokens;
  }
  __device__ void fetch_constants();
  __device__ void fetch_fn(Chunk& to_chunk, int chunk);
  __device__ void fetch_stream(Chunk& to_chunk, int64_t first, int chunk);
  __device__ void add_products(const Chunk& chunk);
  __device__ void collapse(const Chunk& chunk, int index);
  __device__ void send(float* of_warps);
  __device__ void receive(int64_t first);
  __device__ void write_x(int64_t first);
  __device__ void finish_pending();

  const Collapse& args_;
  Shared& shared_;
  const cg::cluster_group cluster_ = cg::this_cluster();
  const int slice_ = cluster_.block_rank();
  const int thread_ = threadIdx.x, warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32;
  const int cluster_index_ = blockIdx.x / kSlices, clusters_ = gridDim.x / kSlices;
  int pending_ = 0;
  float4 pre_;  // of token thread_ / 8
  float sums_[kLaneTokens][kLaneMixes] =
      {};                // [i][m]: of token lane_ % 16 + 16 i, mix lane_ / 16 * 12 + m
  float2 squares_ = {};  // of the thread's eighth of token thread_ / 8
};

__device__ void Block::fetch_constants() {
  if (warp_ == 0 && lane_ < kMixes) shared_.base[lane_] = args_.base[lane_];
  if (warp_ == 1 && lane_ < 3) shared_.scale[lane_] = args_.scale[lane_];
  if (args_.norm != nullptr && thread_ < kSlice / kUnit)
    copy_16(&shared_.norm[thread_], args_.norm + slice_ * kSlice + thread_ * kUnit);
}

// A warp fetches a row's chunk of all copies, the first eight a second row.
__device__ void Block::fetch_fn(Chunk& to_chunk, int chunk) {
  const int copy = lane_ / 8, at = lane_ % 8 * 4;
  float* to = &to_chunk.fn[warp_][copy * kChunk + at];
  const float* from =
      args_.fn + (warp_ * kCopies + copy) * kDim + slice_ * kSlice + chunk * kChunk + at;
  copy_16(to, from);
  if (warp_ < kMixes - kWarps) copy_16(to + kWarps * kFnRow, from + kWarps * kCopies * kDim);
}

// Two units a thread, of one token.
__device__ void Block::fetch_stream(Chunk& to_chunk, int64_t first, int chunk) {
  const int part = thread_ % 4, t = thread_ / 4 % kTokens, copy = thread_ / 4 / kTokens;
  const bool inside = first + t < args_.tokens;
  uint4* to = &to_chunk.stream[copy][t][part ^ (t / 2 % 4)];
  const bf16* from = args_.stream + ((inside ? first + t : 0) * kCopies + copy) * kDim +
                     slice_ * kSlice + chunk * kChunk + part * kUnit;
  copy_16(to, from, inside);
  copy_16(to + 2 * kTokens * 4, from + 2 * kDim, inside);
}

// The warp's part of the chunk: 8 columns.
__device__ void Block::add_products(const Chunk& chunk) {
  const int copy = warp_ / 4, part = warp_ % 4;
  const int token = lane_ % kTokenGroups, mix = lane_ / kTokenGroups * kLaneMixes;
  const float* fn = &chunk.fn[mix][copy * kChunk + part * kUnit];
  // (token + 16 i) / 2 % 4 does not depend on i.
  const uint4* units = &chunk.stream[copy][token][part ^ (token / 2 % 4)];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float value[kLaneTokens][4];
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      const uint2 words = reinterpret_cast<const uint2*>(units + i * kTokenGroups * 4)[half];
      value[i][0] = low_value(words.x), value[i][1] = high_value(words.x);
      value[i][2] = low_value(words.y), value[i][3] = high_value(words.y);
    }
#pragma unroll
    for (int m = 0; m < kLaneMixes; ++m) {
      const float4 factor = *reinterpret_cast<const float4*>(fn + m * kFnRow + half * 4);
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        float& sum = sums_[i][m];
        sum = fmaf(value[i][0], factor.x, sum);
        sum = fmaf(value[i][1], factor.y, sum);
        sum = fmaf(value[i][2], factor.z, sum);
        sum = fmaf(value[i][3], factor.w, sum);
      }
    }
  }
}

// The thread's eighth of the chunk of its token.
__device__ void Block::collapse(const Chunk& chunk, int index) {
  const int t = thread_ / kEighths, eighth = thread_ % kEighths;
  uint2 words[kCopies];
#pragma unroll
  for (int copy = 0; copy < kCopies; ++copy) {
    const uint4& unit = chunk.stream[copy][t][eighth / 2 ^ (t / 2 % 4)];
    words[copy] = reinterpret_cast<const uint2*>(&unit)[eighth % 2];
  }
  const Eighth out = collapse_eighth(words, pre_);
  reinterpret_cast<uint2*>(shared_.x[t])[index * kEighths + eighth] = out.x;
  squares_ = {squares_.x + out.squares.x, squares_.y + out.squares.y};
}

// Adds up the parts, and gives every sum to the block that needs it.
__device__ void Block::send(float* of_warps) {
  constexpr int kVectors = kRound / 4, kOutputs = kRound * 32;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) __syncthreads();
#pragma unroll
    for (int q = 0; q < kVectors; ++q) {
      float value[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = round * kRound + q * 4 + e;
        value[e] = sums_[i / kLaneMixes][i % kLaneMixes];
      }
      reinterpret_cast<float4*>(of_warps)[(warp_ * kVectors + q) * 32 + lane_] = {
          value[0], value[1], value[2], value[3]};
    }
    __syncthreads();
    if (thread_ >= kOutputs) continue;
    const int lane = thread_ / 4 % 32, i = round * kRound + thread_ / 128 * 4 + thread_ % 4;
    const int t = lane % kTokenGroups + i / kLaneMixes * kTokenGroups;
    const int mix = lane / kTokenGroups * kLaneMixes + i % kLaneMixes;
    const float* first = of_warps + thread_;
    *cluster_.map_shared_rank(&shared_.products[slice_][t / kSlices][mix], t % kSlices) =
        sum_of_8(first, kOutputs) + sum_of_8(first + 8 * kOutputs, kOutputs);
  }
  const int t = thread_ / kEighths, eighth = thread_ % kEighths;
  const float of_stream = sum_of_8_lanes(squares_.x), of_x = sum_of_8_lanes(squares_.y);
  *cluster_.map_shared_rank(&shared_.x_squares[t][slice_], eighth) = of_x;
  if (eighth == 0)
    *cluster_.map_shared_rank(&shared_.products[slice_][t / kSlices][kMixes], t % kSlices) =
        of_stream;
}

// What the cluster found of the tile that starts at `first`.
__device__ void Block::receive(int64_t first) {
  if (warp_ < kOwned) {
    const int64_t token = first + warp_ * kSlices + slice_;
    const bool live = token < args_.tokens;
    float product =
        sum_of_8(&shared_.products[0][warp_][min(lane_, kMixes)], kOwned * (kMixes + 1));
    if (lane_ == kMixes) product /= kCopies * kDim;
    if (live)
      begin_coefficients(args_, token, product, shared_.base, shared_.scale,
                         shared_.pending[pending_ + warp_]);
    if (lane_ == 0) shared_.pending_token[pending_ + warp_] = live ? static_cast<int>(token) : -1;
  }
  pending_ += kOwned;
  const int t = thread_ / kEighths, eighth = thread_ % kEighths;
  const float square = sum_of_8_lanes(shared_.x_squares[t][eighth]);
  if (eighth == 0) shared_.inverse_root[t] = inverse_root(square, args_.norm_eps);
}

__device__ void Block::write_x(int64_t first) {
  constexpr int kUnits = kSlice / kUnit;
#pragma unroll 2
  for (int i = thread_; i < kTokens * kUnits; i += kThreads) {
    const int t = i / kUnits, unit = i % kUnits;
    if (first + t >= args_.tokens) break;
    uint4 words = shared_.x[t][unit];
    if (args_.norm != nullptr) words = normed(words, shared_.norm[unit], shared_.inverse_root[t]);
    store_unit(args_.x + (first + t) * kDim + slice_ * kSlice, unit, words);
  }
}

__device__ void Block::finish_pending() {
  if (warp_ != 0) return;
  const int token = lane_ < pending_ ? shared_.pending_token[lane_] : -1;
  if (token >= 0) finish_coefficients(args_, token, shared_.pending[lane_]);
}

__device__ void Block::run() {
  // Barriers of the cluster alternate: one says that all blocks have read what they were sent
  // (first: that they exist), the next that all have sent.
  cluster_.barrier_arrive();
  const int tiles = static_cast<int>((args_.tokens + kTokens - 1) / kTokens);
  const int own_tiles = (tiles - cluster_index_ + clusters_ - 1) / clusters_;
  fetch_constants();
  for (int i = 0; i < kStageChunks; ++i) fetch_fn(shared_.stages[0][i], i);
  let_next_start();
  wait_for_inputs();
  for (int i = 0; i < kStageChunks; ++i) fetch_stream(shared_.stages[0][i], first_token(0), i);
  commit_copies();
  int stage = 0;
  for (int tile = 0; tile < own_tiles; ++tile) {
    const int64_t first = first_token(tile);
    const int64_t token = std::min(first + thread_ / kEighths, args_.tokens - 1);
    pre_ = *reinterpret_cast<const float4*>(args_.pre_in + token * kCopies);
    for (int step = 0; step < kSteps; ++step) {
      wait_copies<0>();
      __syncthreads();
      const bool of_next = step + 1 == kSteps;
      if (!of_next || tile + 1 < own_tiles) {
        const int64_t from = of_next ? first_token(tile + 1) : first;
        const int next = of_next ? 0 : (step + 1) * kStageChunks;
#pragma unroll
        for (int i = 0; i < kStageChunks; ++i) {
          fetch_fn(shared_.stages[stage ^ 1][i], next + i);
          fetch_stream(shared_.stages[stage ^ 1][i], from, next + i);
        }
      }
      commit_copies();
#pragma unroll 1
      for (int i = 0; i < kStageChunks; ++i) {
        const Chunk& chunk = shared_.stages[stage][i];
        const int index = step * kStageChunks + i;
        add_products(chunk);
        collapse(chunk, index);
      }
      stage ^= 1;
    }
    cluster_.barrier_wait();
    __syncthreads();
    // The stage that was read last is free until the next step.
    send(reinterpret_cast<float*>(&shared_.stages[stage ^ 1]));
    cluster_.barrier_arrive();
    cluster_.barrier_wait();
    receive(first);
    const bool last = tile + 1 == own_tiles;
    if (!last) cluster_.barrier_arrive();
    __syncthreads();
    if (last || pending_ + kOwned > kMostPending) {
      finish_pending();
      pending_ = 0;
    }
    write_x(first);
#pragma unroll
    for (auto& of_token : sums_)
#pragma unroll
      for (float& sum : of_token) sum = 0;
    squares_ = {};
  }
}

__global__ void __launch_bounds__(kThreads, 1) collapse_many_kernel(const Collapse args) {
  extern __shared__ uint4 dynamic[];
  Block(args, *reinterpret_cast<Shared*>(dynamic)).run();
}

}  // namespace

void collapse_many(Queue& queue, const HyperCollapseArgs& args) {
  LaunchShape shape{.threads = kThreads, .shared_bytes = sizeof(Shared), .cluster = kSlices};
  static const int most = most_clusters("hyper_collapse", collapse_many_kernel, shape);
  const int64_t tiles = (args.stream.extent(0) + kTokens - 1) / kTokens;
  shape.blocks = static_cast<unsigned>(std::min<int64_t>(tiles, most) * kSlices);
  launch(queue, "hyper_collapse", collapse_many_kernel, shape, Collapse(args));
}

}  // namespace cachalot::cuda
