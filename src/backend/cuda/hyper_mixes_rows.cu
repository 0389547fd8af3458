// The coefficients of a collapse of more tokens than hyper_mixes.cuh takes
// (docs/kernels/hyper_connections.md).
//
// 32 blocks share 16 tokens at a time: two copies of a slice and half of the mixes each, so that
// two blocks fit a multiprocessor. Each leaves its sums in memory (awaited_sums.cuh), and the first
// 16 compute the coefficients of a token each.
#include <algorithm>

#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/hyper_mixes.cuh"

namespace cachalot::cuda {
namespace {

using namespace collapse_order;

constexpr int kTokens = 16, kBlockCopies = kCopies / 2, kUnits = kSlice / kUnit;
constexpr int kHalves = 2, kBlockMixes = kMixes / kHalves;
constexpr int kGroup = kMixBlocks * kHalves;
// A warp a part of the sums: eight columns of every chunk. A lane has so many tokens and mixes.
constexpr int kWarps = kParts / 2, kThreads = 32 * kWarps;
constexpr int kLaneTokens = 2, kLaneMixes = 3, kTokenLanes = kTokens / kLaneTokens;
static_assert(kTokenLanes * (kBlockMixes / kLaneMixes) == 32);
static_assert(kTokens <= kMixBlocks);

struct Shared {
  // A row per mix, and one per token: rows that a warp reads at once lie in different banks.
  float fn[kBlockCopies][kBlockMixes][kSlice + 4];
  uint4 stream[kTokens][kBlockCopies * kUnits + 1];
  float of_warps[kWarps][kTokens][kBlockMixes];
  float base[kMixes], scale[3];
  alignas(16) float matrix[kWarps][16];
  Barrier fn_there, stream_there;
};

__device__ void fetch_fn(const float* fn, int block, int first_mix, Shared& shared) {
  constexpr uint32_t kBytes = kSlice * sizeof(float);
  constexpr int kPieces = kBlockCopies * kBlockMixes;
  const int thread = threadIdx.x, slice = block % kSlices, half = block / kSlices;
  if (thread == 0) {
    barrier_init(&shared.fn_there, 1);
    barrier_init(&shared.stream_there, 1);
    fence_barrier_init();
    barrier_expect(&shared.fn_there, kPieces * kBytes);
  }
  __syncthreads();
  if (thread >= kPieces) return;
  const int copy = thread / kBlockMixes, mix = thread % kBlockMixes;
  const int row = (first_mix + mix) * kCopies + half * kBlockCopies + copy;
  copy_bulk(shared.fn[copy][mix], fn + row * kDim + slice * kSlice, kBytes, &shared.fn_there);
}

// By the first warp, a piece a lane. Rows of tokens that are not there stay what they are: their
// sums are not left.
__device__ void fetch_stream(const Collapse& args, int64_t first, int block, Shared& shared) {
  constexpr uint32_t kBytes = kSlice * sizeof(bf16);
  static_assert(kTokens * kBlockCopies == 32);
  if (threadIdx.x >= 32) return;
  const int slice = block % kSlices, half = block / kSlices;
  const int t = threadIdx.x / kBlockCopies, copy = threadIdx.x % kBlockCopies;
  const auto there = static_cast<uint32_t>(min(args.tokens - first, int64_t{kTokens}));
  if (threadIdx.x == 0) barrier_expect(&shared.stream_there, there * kBlockCopies * kBytes);
  __syncwarp();
  if (static_cast<uint32_t>(t) >= there) return;
  const int64_t row = (first + t) * kCopies + half * kBlockCopies + copy;
  copy_bulk(&shared.stream[t][copy * kUnits], args.stream + row * kDim + slice * kSlice, kBytes,
            &shared.stream_there);
}

// The warp's part of all tokens and mixes.
__device__ void multiply(Shared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int token = lane % kTokenLanes, mix = lane / kTokenLanes * kLaneMixes;
  const int copy = warp / 4, eight = warp % 4;
  const uint4* units = &shared.stream[token][copy * kUnits + eight];
  const float* fn = &shared.fn[copy][mix][eight * kUnit];
  constexpr int kTokenPitch = kTokenLanes * (kBlockCopies * kUnits + 1);
  float sums[kLaneTokens][kLaneMixes] = {};
#pragma unroll 2
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    Unit values[kLaneTokens];
#pragma unroll
    for (int t = 0; t < kLaneTokens; ++t) values[t] = widen(units[t * kTokenPitch + chunk * 4]);
#pragma unroll
    for (int m = 0; m < kLaneMixes; ++m) {
      const auto* from = reinterpret_cast<const float4*>(fn + m * (kSlice + 4) + chunk * kChunk);
      const float4 low = from[0], high = from[1];
      const float factor[kUnit] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
        for (int i = 0; i < kUnit; ++i)
          sums[t][m] = fmaf(values[t].value[i], factor[i], sums[t][m]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
    for (int m = 0; m < kLaneMixes; ++m)
      shared.of_warps[warp][token + t * kTokenLanes][mix + m] = sums[t][m];
  }
}

// What the kernel does besides the sums.
enum class Start {
  alone,
  // The first of the kernels in front lets the next start when all its blocks have waited, so that
  // all before it have ended; this one needs nothing else. Whoever waits for this one waits for
  // them too, because the first block does.
  beside,
  sums_beside,  // and another kernel computes the coefficients
};

template <Start kStart>
__global__ void __launch_bounds__(kThreads, 2) mixes_of_rows(const Mixes of) {
  extern __shared__ uint4 dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const Collapse& args = of.collapse;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int group = blockIdx.x / kGroup, groups = gridDim.x / kGroup;
  const int block = blockIdx.x % kGroup % kMixBlocks;
  const int first_mix = blockIdx.x % kGroup / kMixBlocks * kBlockMixes;
  const auto first_token = [&](int round) { return (int64_t{round} * groups + group) * kTokens; };
  fetch_fn(args.fn, block, first_mix, shared);
  let_next_start();
  if (kStart == Start::alone) wait_for_inputs();

  fetch_stream(args, first_token(0), block, shared);
  if (kStart != Start::sums_beside) {
    if (warp == 1 && lane < kMixes) shared.base[lane] = args.base[lane];
    if (warp == 2 && lane < 3) shared.scale[lane] = args.scale[lane];
  }
  for (int round = 0; first_token(round) < args.tokens; ++round) {
    const int64_t first = first_token(round);
    if (round == 0) {
      barrier_wait(&shared.fn_there, 0);
    } else {
      __syncthreads();  // the sums of the round before have been left
    }
    barrier_wait(&shared.stream_there, round % 2);
    multiply(shared);
    __syncthreads();
    if (first_token(round + 1) < args.tokens)
      fetch_stream(args, first_token(round + 1), block, shared);
    const int t = thread / kBlockMixes, mix = thread % kBlockMixes;
    if (t < kTokens && first + t < args.tokens) {
      leave_sum(of.sums + ((first + t) * kMixBlocks + block) * kMixes + first_mix + mix,
                sum_of_8(&shared.of_warps[0][t][mix], kTokens * kBlockMixes));
    }
  }

  // Rounds by warps.
  if (kStart != Start::sums_beside && first_mix == 0 && block < kTokens) {
    for (int round = warp; first_token(round) + block < args.tokens; round += kWarps) {
      finish_mixes(of, first_token(round) + block, shared.base, shared.scale, shared.matrix[warp]);
      __syncwarp();
    }
  }
  if (kStart != Start::alone && blockIdx.x == 0) wait_for_inputs();
}

template <Start kStart>
void start(Queue& queue, const Mixes& mixes) {
  LaunchShape shape{.threads = kThreads, .shared_bytes = sizeof(Shared)};
  // Blocks that wait for one another.
  static const int at_once = most_clusters("hyper_collapse", mixes_of_rows<kStart>, shape);
  CACHALOT_CHECK(at_once >= kGroup, "{} blocks at once", at_once);
  const int64_t groups = (mixes.collapse.tokens + kTokens - 1) / kTokens;
  shape.blocks = static_cast<unsigned>(std::min<int64_t>(groups, at_once / kGroup) * kGroup);
  launch(queue, "hyper_collapse", mixes_of_rows<kStart>, shape, mixes);
}

}  // namespace

void start_mixes_of_rows(Queue& queue, const Mixes& mixes) { start<Start::alone>(queue, mixes); }
void start_mixes_beside(Queue& queue, const Mixes& mixes) { start<Start::beside>(queue, mixes); }
void start_sums_beside(Queue& queue, const Mixes& mixes) {
  start<Start::sums_beside>(queue, mixes);
}

}  // namespace cachalot::cuda
