// hyper_collapse for the released stream (docs/kernels/hyper_connections.md).
//
// A cluster of 16 blocks takes a tile of tokens; every block has 320 of the 5120 dimensions, in all
// four copies, and its part of fn in shared memory for as long as it lives. Of a token's product
// with a row of fn, a warp adds 80 columns in a chain, 8 in each chunk of 32 dimensions; then come
// the 16 warps and the 16 blocks by fixed trees. That order is the same for every tile size.
#include <cooperative_groups.h>

#include <algorithm>

#include "backend/cuda/hyper_coefficients.h"
#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kDim = 5120, kCopies = 4, kMixes = 24;
constexpr int kRanks = 16, kWarps = 16, kThreads = 32 * kWarps;
constexpr int kSlice = kDim / kRanks;  // dimensions of a block
constexpr int kChunk = 32;             // dimensions that are added before the next ones
constexpr int kChunks = kSlice / kChunk;
constexpr int kFourths = kChunk / 4;  // threads that collapse a token's chunk, 4 dimensions each
// Rows of fn start 4 banks apart, so that 8 lanes with 8 rows read 16 bytes each at once.
constexpr int kFnRow = kCopies * kSlice + 4;

// How a tile of kTokens is worked on.
template <int kTokens>
struct Tile {
  static constexpr bool kWide = kTokens == 64;
  // Every lane of a warp has so many tokens and mixes of the warp's columns.
  static constexpr int kLaneTokens = kWide ? 4 : 1;
  static constexpr int kLaneMixes = kWide ? 12 : kTokens == 8 ? 6 : 1;
  static constexpr int kTokenGroups = kTokens / kLaneTokens;
  static constexpr int kMixGroups = kMixes / kLaneMixes;
  static_assert(kTokenGroups * kMixGroups <= 32);
  static constexpr int kSums = kLaneTokens * kLaneMixes;
  // The stream arrives in stages: a chunk each where shared memory is short, else the whole slice.
  static constexpr int kStageChunks = kWide ? 1 : kChunks;
  static constexpr int kSteps = kChunks / kStageChunks;
  static constexpr int kStages = kWide ? 3 : 2;
  // Sums of all warps that are added up at a time: 16 KB, what one stage holds.
  static constexpr int kRound = kWide ? 8 : kSums;
  static constexpr int kVector = kRound % 4 == 0 ? 4 : kRound % 2 == 0 ? 2 : 1;
  // Tokens of a tile whose coefficients a block computes, and for how many it waits to do so.
  static constexpr int kOwned = (kTokens + kRanks - 1) / kRanks;
  static constexpr int kMostPending = kWide ? 32 : 8;
};

template <int kTokens>
struct Stage {
  // Unit u of a token's chunk lies at u ^ (token / 2 % 4): eight tokens' units in all banks.
  uint4 stream[Tile<kTokens>::kStageChunks][kCopies][kTokens][4];
  float4 pre[kTokens];
};

template <int kTokens>
struct Shared {
  using T = Tile<kTokens>;
  alignas(16) float fn[kMixes][kFnRow];
  Stage<kTokens> stages[T::kStages];
  alignas(16) uint2 x[kTokens][kSlice / 4];
  alignas(16) bf16 norm[kSlice];
  // What the blocks of the cluster found, by rank: product and stream's square of this block's
  // tokens, x's square of all tokens.
  float products[kRanks][T::kOwned][kMixes + 1];
  float squares[kRanks][kTokens + 4];  // 4: lanes with 8 ranks of 4 tokens in all banks
  float pending[T::kMostPending][kMixes + 1];
  int pending_token[T::kMostPending];
  float inverse_root[kTokens];
  float base[kMixes], scale[3];
  Barrier weights;
  // Where the tile has no threads that keep them in registers, and no stage to spare.
  float2 chunk_squares[T::kWide ? 1 : kTokens * kFourths][kChunks];
  float of_warps[T::kWide ? 1 : kWarps * T::kRound * 32];
};

template <int kTokens>
class Block {
 public:
  using T = Tile<kTokens>;

  __device__ Block(const Collapse& args, Shared<kTokens>& shared)
      : args_(args), shared_(shared), rank_(cluster_.block_rank()) {}

  __device__ void run();

 private:
  __device__ int64_t first_token(int tile) const {
    return (first_tile_ + int64_t{tile} * clusters_) * kTokens;
  }
  __device__ void fetch_weights();
  __device__ void fetch(int step);
  __device__ void add_products(const Stage<kTokens>& stage, int chunk);
  __device__ void collapse(const Stage<kTokens>& stage, int step);
  __device__ float2 squares_of_token();
  __device__ void send_products(float* of_warps);
  __device__ void receive(int64_t first);
  __device__ void write_x(int64_t first);
  __device__ void write_coefficients();

  const Collapse& args_;
  Shared<kTokens>& shared_;
  const cg::cluster_group cluster_ = cg::this_cluster();
  const int rank_, thread_ = threadIdx.x, warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32;
  const int first_tile_ = blockIdx.x / kRanks, clusters_ = gridDim.x / kRanks;
  int steps_ = 0;  // of all tiles of the cluster
  int pending_ = 0;
  float sums_[T::kLaneTokens][T::kLaneMixes] = {};
  float2 squares_ = {};  // of a wide tile: of the thread's token, by its chunks
};

template <int kTokens>
__device__ void Block<kTokens>::fetch_weights() {
  if (warp_ == 0) {
    if (lane_ == 0) {
      barrier_init(&shared_.weights, 1);
      fence_barrier_init();
      barrier_expect(&shared_.weights, kMixes * kCopies * kSlice * sizeof(float) +
                                           (args_.norm != nullptr ? kSlice * sizeof(bf16) : 0));
      if (args_.norm != nullptr)
        copy_bulk(shared_.norm, args_.norm + rank_ * kSlice, kSlice * sizeof(bf16),
                  &shared_.weights);
    }
    __syncwarp();
    for (int i = lane_; i < kMixes * kCopies; i += 32) {
      const int mix = i / kCopies, copy = i % kCopies;
      copy_bulk(&shared_.fn[mix][copy * kSlice],
                args_.fn + (mix * kCopies + copy) * kDim + rank_ * kSlice, kSlice * sizeof(float),
                &shared_.weights);
    }
  }
  if (warp_ == 1 && lane_ < kMixes) shared_.base[lane_] = args_.base[lane_];
  if (warp_ == 2 && lane_ < 3) shared_.scale[lane_] = args_.scale[lane_];
}

// Starts the copies of a step; past the last one an empty group, so that groups count steps.
template <int kTokens>
__device__ void Block<kTokens>::fetch(int step) {
  if (step < steps_) {
    Stage<kTokens>& stage = shared_.stages[step % T::kStages];
    const int64_t first = first_token(step / T::kSteps);
    const int first_chunk = step % T::kSteps * T::kStageChunks;
    constexpr int kUnits = T::kStageChunks * kCopies * kTokens * 4;
#pragma unroll
    for (int u = thread_; u < kUnits; u += kThreads) {
      const int part = u % 4, t = u / 4 % kTokens, copy = u / 4 / kTokens % kCopies;
      const int chunk = u / 4 / kTokens / kCopies;
      const bool inside = first + t < args_.tokens;
      const int64_t row = ((inside ? first + t : 0) * kCopies + copy) * kDim;
      copy_16(&stage.stream[chunk][copy][t][part ^ (t / 2 % 4)],
              args_.stream + row + rank_ * kSlice + (first_chunk + chunk) * kChunk + part * kUnit,
              inside);
    }
    if (first_chunk == 0 && thread_ < kTokens) {
      const bool inside = first + thread_ < args_.tokens;
      copy_16(&stage.pre[thread_], args_.pre_in + (inside ? first + thread_ : 0) * kCopies, inside);
    }
  }
  commit_copies();
}

// The warp's 8 columns of the chunk. `chunk` counts in the slice.
template <int kTokens>
__device__ void Block<kTokens>::add_products(const Stage<kTokens>& stage, int chunk) {
  if (lane_ >= T::kTokenGroups * T::kMixGroups) return;
  const int copy = warp_ / 4, part = warp_ % 4;
  const int token = lane_ % T::kTokenGroups, mix = lane_ / T::kTokenGroups * T::kLaneMixes;
  uint4 values[T::kLaneTokens];
#pragma unroll
  for (int i = 0; i < T::kLaneTokens; ++i) {
    const int t = token + i * T::kTokenGroups;
    values[i] = stage.stream[chunk % T::kStageChunks][copy][t][part ^ (t / 2 % 4)];
  }
  const float* fn = &shared_.fn[mix][copy * kSlice + chunk * kChunk + part * kUnit];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float value[T::kLaneTokens][4];
#pragma unroll
    for (int i = 0; i < T::kLaneTokens; ++i) {
      const uint32_t first = half == 0 ? values[i].x : values[i].z;
      const uint32_t second = half == 0 ? values[i].y : values[i].w;
      value[i][0] = low_value(first), value[i][1] = high_value(first);
      value[i][2] = low_value(second), value[i][3] = high_value(second);
    }
#pragma unroll
    for (int m = 0; m < T::kLaneMixes; ++m) {
      const float4 factor = *reinterpret_cast<const float4*>(fn + m * kFnRow + half * 4);
#pragma unroll
      for (int i = 0; i < T::kLaneTokens; ++i) {
        float& sum = sums_[i][m];
        sum = fmaf(value[i][0], factor.x, sum);
        sum = fmaf(value[i][1], factor.y, sum);
        sum = fmaf(value[i][2], factor.z, sum);
        sum = fmaf(value[i][3], factor.w, sum);
      }
    }
  }
}

// x before its norm, and the squares of stream and x: four dimensions of a token by each thread.
template <int kTokens>
__device__ void Block<kTokens>::collapse(const Stage<kTokens>& stage, int step) {
  constexpr int kWork = T::kStageChunks * kTokens * kFourths;
  // They came with the tile's first step, and that stage's are not written again before the tile
  // after the next.
  const float4* mixes = shared_.stages[(step - step % T::kSteps) % T::kStages].pre;
  for (int i = thread_; i < kWork; i += kThreads) {
    const int fourth = i % kFourths, t = i / kFourths % kTokens, chunk = i / kFourths / kTokens;
    const float4 pre = mixes[t];
    const float share[kCopies] = {pre.x, pre.y, pre.z, pre.w};
    float sum[4] = {};
    float2 squares = {};
#pragma unroll
    for (int copy = 0; copy < kCopies; ++copy) {
      const uint4& unit = stage.stream[chunk][copy][t][fourth / 2 ^ (t / 2 % 4)];
      const uint2 words = reinterpret_cast<const uint2*>(&unit)[fourth % 2];
      const float value[4] = {low_value(words.x), high_value(words.x), low_value(words.y),
                              high_value(words.y)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum[e] = fmaf(share[copy], value[e], sum[e]);
        squares.x = fmaf(value[e], value[e], squares.x);
      }
    }
    const uint2 rounded = {pack_values(sum[0], sum[1]), pack_values(sum[2], sum[3])};
    const int at = step % T::kSteps * T::kStageChunks + chunk;
    shared_.x[t][at * kFourths + fourth] = rounded;
    const float x[4] = {low_value(rounded.x), high_value(rounded.x), low_value(rounded.y),
                        high_value(rounded.y)};
#pragma unroll
    for (int e = 0; e < 4; ++e) squares.y = fmaf(x[e], x[e], squares.y);
    if constexpr (T::kWide) {
      squares_.x += squares.x;
      squares_.y += squares.y;
    } else {
      shared_.chunk_squares[t * kFourths + fourth][at] = squares;
    }
  }
}

// Of token thread_ / kFourths, in all its threads: the block's part.
template <int kTokens>
__device__ float2 Block<kTokens>::squares_of_token() {
  float2 out = squares_;
  if constexpr (!T::kWide) {
    const int thread = min(thread_, kTokens * kFourths - 1);
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float2 more = shared_.chunk_squares[thread][chunk];
      out = {out.x + more.x, out.y + more.y};
    }
  }
#pragma unroll
  for (int distance = kFourths / 2; distance > 0; distance /= 2) {
    out.x += __shfl_xor_sync(~0u, out.x, distance);
    out.y += __shfl_xor_sync(~0u, out.y, distance);
  }
  return out;
}

// The sum of 16 values `stride` apart.
__device__ float sum_of_16(const float* first, int stride) {
  float value[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) value[i] = first[i * stride];
#pragma unroll
  for (int i = 0; i < 8; ++i) value[i] += value[i + 8];
#pragma unroll
  for (int i = 0; i < 4; ++i) value[i] += value[i + 4];
  return (value[0] + value[2]) + (value[1] + value[3]);
}

// Adds up the warps' sums and gives each to the block that owns the token.
template <int kTokens>
__device__ void Block<kTokens>::send_products(float* of_warps) {
  struct alignas(4 * T::kVector) Vector {
    float value[T::kVector];
  };
  constexpr int kVectors = T::kRound / T::kVector, kOutputs = T::kRound * 32;
#pragma unroll
  for (int round = 0; round < T::kSums / T::kRound; ++round) {
    if (round > 0) __syncthreads();
#pragma unroll
    for (int q = 0; q < kVectors; ++q) {
      Vector vector;
#pragma unroll
      for (int e = 0; e < T::kVector; ++e) {
        const int i = round * T::kRound + q * T::kVector + e;
        vector.value[e] = sums_[i / T::kLaneMixes][i % T::kLaneMixes];
      }
      reinterpret_cast<Vector*>(of_warps)[(warp_ * kVectors + q) * 32 + lane_] = vector;
    }
    __syncthreads();
    const int lane = thread_ / T::kVector % 32;
    if (thread_ >= kOutputs || lane >= T::kTokenGroups * T::kMixGroups) continue;
    const int i =
        round * T::kRound + thread_ / (32 * T::kVector) * T::kVector + thread_ % T::kVector;
    const int t = lane % T::kTokenGroups + i / T::kLaneMixes * T::kTokenGroups;
    const int mix = lane / T::kTokenGroups * T::kLaneMixes + i % T::kLaneMixes;
    float* to = &shared_.products[rank_][t / kRanks][mix];
    *cluster_.map_shared_rank(to, t % kRanks) = sum_of_16(of_warps + thread_, kOutputs);
  }
}

// What the cluster found of the tile that starts at `first`.
template <int kTokens>
__device__ void Block<kTokens>::receive(int64_t first) {
  constexpr int kValues = kMixes + 1;
  if (thread_ < T::kOwned * kValues) {
    const int owned = thread_ / kValues, i = thread_ % kValues;
    shared_.pending[pending_ + owned][i] =
        sum_of_16(&shared_.products[0][owned][i], T::kOwned * kValues);
    const int t = owned * kRanks + rank_;
    const bool live = t < kTokens && first + t < args_.tokens;
    if (i == 0) shared_.pending_token[pending_ + owned] = live ? static_cast<int>(first + t) : -1;
  }
  pending_ += T::kOwned;
  if (args_.norm != nullptr && warp_ * 32 < kTokens * kFourths) {
    static_assert(kRanks == 2 * kFourths);
    const int t = min(thread_ / kFourths, kTokens - 1), eighth = thread_ % kFourths;
    float square = shared_.squares[eighth][t] + shared_.squares[eighth + kFourths][t];
#pragma unroll
    for (int distance = kFourths / 2; distance > 0; distance /= 2)
      square += __shfl_xor_sync(~0u, square, distance);
    if (eighth == 0) shared_.inverse_root[t] = 1 / sqrtf(square / kDim + args_.norm_eps);
  }
}

template <int kTokens>
__device__ void Block<kTokens>::write_x(int64_t first) {
  constexpr int kUnits = kSlice / kUnit;
#pragma unroll
  for (int u = thread_; u < kTokens * kUnits; u += kThreads) {
    const int t = u / kUnits, part = u % kUnits;
    if (first + t >= args_.tokens) break;
    uint4 words = reinterpret_cast<const uint4*>(shared_.x[t])[part];
    if (args_.norm != nullptr) {
      Unit value = widen(words);
      const Unit norm = widen(load_unit(shared_.norm, part));
      const float inverse_root = shared_.inverse_root[t];
#pragma unroll
      for (int e = 0; e < kUnit; ++e)
        value.value[e] = norm.value[e] * (value.value[e] * inverse_root);
      words = narrow(value);
    }
    store_unit(args_.x + (first + t) * kDim + rank_ * kSlice, part, words);
  }
}

// Of the pending tokens, four lanes each: the upper half of the block's warps, so that the lower
// ones can write x meanwhile.
template <int kTokens>
__device__ void Block<kTokens>::write_coefficients() {
  const int entry = (thread_ - kThreads / 2) / 4;
  if (warp_ < kWarps / 2 || warp_ * 32 >= kThreads / 2 + 4 * T::kMostPending) return;
  const bool live = entry < pending_ && shared_.pending_token[entry] >= 0;
  if (!__any_sync(~0u, live)) return;
  const float* mixes = shared_.pending[live ? entry : 0];
  write_four(args_, live ? shared_.pending_token[entry] : 0, mixes,
             mixes[kMixes] / (kCopies * kDim), shared_.base, shared_.scale, live);
}

template <int kTokens>
__device__ void Block<kTokens>::run() {
  // Barriers of the cluster alternate: one says that all blocks have read what they were sent
  // (first: that they exist), the next that all have sent.
  cluster_.barrier_arrive();
  fetch_weights();
  const int tiles = static_cast<int>((args_.tokens + kTokens - 1) / kTokens);
  steps_ = (tiles - first_tile_ + clusters_ - 1) / clusters_ * T::kSteps;
  let_next_start();
  wait_for_inputs();
  for (int step = 0; step < T::kStages - 1; ++step) fetch(step);
  for (int step = 0; step < steps_; ++step) {
    wait_copies<T::kStages - 2>();
    __syncthreads();
    if (step == 0) barrier_wait(&shared_.weights, 0);
    fetch(step + T::kStages - 1);
    Stage<kTokens>& stage = shared_.stages[step % T::kStages];
    const int in_tile = step % T::kSteps;
#pragma unroll
    for (int chunk = 0; chunk < T::kStageChunks; ++chunk)
      add_products(stage, in_tile * T::kStageChunks + chunk);
    collapse(stage, step);
    if (in_tile != T::kSteps - 1) continue;

    const int64_t first = first_token(step / T::kSteps);
    cluster_.barrier_wait();
    __syncthreads();
    send_products(T::kWide ? reinterpret_cast<float*>(&stage) : shared_.of_warps);
    if (warp_ * 32 < kTokens * kFourths) {
      const float2 squares = squares_of_token();
      const int t = thread_ / kFourths, eighth = thread_ % kFourths;
      if (t < kTokens) {
        float* of_x = &shared_.squares[rank_][t];
        *cluster_.map_shared_rank(of_x, eighth) = squares.y;
        *cluster_.map_shared_rank(of_x, eighth + kFourths) = squares.y;
        float* of_stream = &shared_.products[rank_][t / kRanks][kMixes];
        if (eighth == 0) *cluster_.map_shared_rank(of_stream, t % kRanks) = squares.x;
      }
    }
    cluster_.barrier_arrive();
    cluster_.barrier_wait();
    receive(first);
    const bool last = step == steps_ - 1;
    if (!last) cluster_.barrier_arrive();
    __syncthreads();
    write_x(first);
    if (last || pending_ + T::kOwned > T::kMostPending) {
      write_coefficients();
      pending_ = 0;
    }
#pragma unroll
    for (auto& of_token : sums_)
#pragma unroll
      for (float& sum : of_token) sum = 0;
    squares_ = {};
  }
}

template <int kTokens>
__global__ void __launch_bounds__(kThreads, 1) collapse_cluster_kernel(const Collapse args) {
  extern __shared__ uint4 dynamic[];
  Block<kTokens>(args, *reinterpret_cast<Shared<kTokens>*>(dynamic)).run();
}

template <int kTokens>
LaunchShape shape_of(int64_t clusters) {
  return {.blocks = static_cast<unsigned>(clusters * kRanks),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared<kTokens>),
          .cluster = kRanks};
}

// How many clusters run at once: parts of the chip with fewer than 16 multiprocessors take none.
int most_clusters() {
  static const int most = [] {
    const auto kernel = collapse_cluster_kernel<64>;
    const LaunchShape shape = shape_of<64>(1);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "hyper_collapse");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "hyper_collapse");
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kRanks, 1, 1};
    const cudaLaunchConfig_t config{.gridDim = shape.blocks,
                                    .blockDim = shape.threads,
                                    .dynamicSmemBytes = shape.shared_bytes,
                                    .attrs = &cluster,
                                    .numAttrs = 1};
    int count = 0;
    check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), "hyper_collapse");
    return count;
  }();
  return most;
}

template <int kTokens>
void launch_tiles(Queue& queue, const HyperCollapseArgs& args) {
  const int64_t tiles = (args.stream.extent(0) + kTokens - 1) / kTokens;
  launch(queue, "hyper_collapse", collapse_cluster_kernel<kTokens>,
         shape_of<kTokens>(std::min<int64_t>(tiles, most_clusters())), Collapse(args));
}

}  // namespace

bool cluster_takes(const HyperCollapseArgs& args) {
  return args.fn.present() && args.stream.extent(1) == kCopies && args.stream.extent(2) == kDim &&
         most_clusters() > 0;
}

void collapse_cluster(Queue& queue, const HyperCollapseArgs& args) {
  const int64_t tokens = args.stream.extent(0);
  // Beyond that a wide tile, which reads fn less often, takes less time than several narrow ones.
  constexpr int64_t kMostNarrow = 256;
  if (tokens <= most_clusters()) {
    launch_tiles<1>(queue, args);
  } else if (tokens <= kMostNarrow) {
    launch_tiles<8>(queue, args);
  } else {
    launch_tiles<64>(queue, args);
  }
}

}  // namespace cachalot::cuda
