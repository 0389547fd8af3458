// hyper_collapse of few tokens (docs/kernels/hyper_connections.md).
//
// A cluster of 16 blocks takes kTokens tokens; two blocks share a slice, eight parts of its sums
// each. What a block needs of fn, 48 pieces of 2560 bytes, comes by the copy engine and is on its
// way before the stream is there. (Loaded by the lanes, each from a row of its own, it takes 7000
// cycles: a request for every 16 bytes.)
#include <cooperative_groups.h>

#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/hyper_coefficients.h"
#include "backend/cuda/hyper_collapse_order.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {
namespace {

using namespace collapse_order;
namespace cg = cooperative_groups;

constexpr int kBlocks = 2 * kSlices, kWarps = kParts / 2, kThreads = 32 * kWarps;

template <int kTokens>
struct Shared {
  // Two copies of the slice, a row per mix; lanes read 16 bytes of 8 rows at a time, which the
  // padding puts into different banks.
  float fn[kCopies / 2][kMixes][kSlice + 4];
  uint4 stream[kTokens][kCopies][kSlice / kUnit];
  float4 pre[kTokens];
  uint4 x[kTokens][kSlice / kUnit];
  uint4 norm[kSlice / kUnit];
  float2 squares_of_chunk[kTokens][kEighths][kChunks];
  float of_warps[kWarps][kTokens][kMixes];
  // What the cluster found: products and the stream's square of the token this block owns; x's
  // square of all tokens.
  float products[2][kSlices][kMixes];
  float stream_squares[kSlices];
  float x_squares[kTokens][kSlices];
  float base[kMixes], scale[3];
  alignas(16) float matrix[16];
  Barrier fn_there;
};

// All threads; the barrier is ready then.
template <int kTokens>
__device__ void fetch_fn(const Collapse& args, Shared<kTokens>& shared, int slice, int half) {
  constexpr uint32_t kBytes = kSlice * sizeof(float);
  constexpr int kPieces = kCopies / 2 * kMixes;
  if (threadIdx.x == 0) {
    barrier_init(&shared.fn_there, 1);
    fence_barrier_init();
    barrier_expect(&shared.fn_there, kPieces * kBytes);
  }
  __syncthreads();
  if (threadIdx.x < kPieces) {
    const int copy = threadIdx.x / kMixes, mix = threadIdx.x % kMixes;
    const int row = mix * kCopies + half * (kCopies / 2) + copy;
    copy_bulk(shared.fn[copy][mix], args.fn + row * kDim + slice * kSlice, kBytes,
              &shared.fn_there);
  }
}

template <int kTokens>
__device__ void fetch_stream(const Collapse& args, Shared<kTokens>& shared, int64_t first,
                             int slice) {
  constexpr int kUnits = kSlice / kUnit;
#pragma unroll
  for (int i = threadIdx.x; i < kTokens * kCopies * kUnits; i += kThreads) {
    const int unit = i % kUnits, copy = i / kUnits % kCopies, t = i / kUnits / kCopies;
    const bool inside = first + t < args.tokens;
    const int64_t row = (inside ? first + t : 0) * kCopies + copy;
    copy_16(&shared.stream[t][copy][unit], args.stream + row * kDim + slice * kSlice + unit * kUnit,
            inside);
  }
  if (threadIdx.x < kTokens) {
    const bool inside = first + threadIdx.x < args.tokens;
    const int64_t token = inside ? first + threadIdx.x : 0;
    copy_16(&shared.pre[threadIdx.x], args.pre_in + token * kCopies, inside);
  }
}

// x before its norm and the squares of the slice.
template <int kTokens>
__device__ void collapse(Shared<kTokens>& shared) {
  for (int i = threadIdx.x; i < kTokens * kChunks * kEighths; i += kThreads) {
    const int eighth = i % kEighths, chunk = i / kEighths % kChunks, t = i / kEighths / kChunks;
    uint2 words[kCopies];
#pragma unroll
    for (int copy = 0; copy < kCopies; ++copy)
      words[copy] =
          reinterpret_cast<const uint2*>(shared.stream[t][copy])[chunk * kEighths + eighth];
    const Eighth out = collapse_eighth(words, shared.pre[t]);
    reinterpret_cast<uint2*>(shared.x[t])[chunk * kEighths + eighth] = out.x;
    shared.squares_of_chunk[t][eighth][chunk] = out.squares;
  }
}

template <int kTokens>
__global__ void __launch_bounds__(kThreads, 1) collapse_few_kernel(const Collapse args) {
  extern __shared__ uint4 dynamic[];
  Shared<kTokens>& shared = *reinterpret_cast<Shared<kTokens>*>(dynamic);
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.barrier_arrive();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int block = cluster.block_rank(), slice = block % kSlices, half = block / kSlices;
  const int64_t first = int64_t{blockIdx.x / kBlocks} * kTokens;

  fetch_fn(args, shared, slice, half);
  if (warp == 0 && lane < kMixes) shared.base[lane] = args.base[lane];
  if (warp == 1 && lane < 3) shared.scale[lane] = args.scale[lane];
  if (args.norm != nullptr && thread < kSlice / kUnit)
    copy_16(&shared.norm[thread], args.norm + slice * kSlice + thread * kUnit);
  let_next_start();
  wait_for_inputs();
  fetch_stream(args, shared, first, slice);
  commit_copies();
  wait_copies<0>();
  __syncthreads();

  const int part = half * kWarps + warp, copy = part / 4, mix = min(lane, kMixes - 1);
  const float4* fn =
      reinterpret_cast<const float4*>(&shared.fn[copy % (kCopies / 2)][mix][part % 4 * kUnit]);
  barrier_wait(&shared.fn_there, 0);
  float sum[kTokens] = {};
#pragma unroll 4
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const float4 low = fn[chunk * (kChunk / 4)], high = fn[chunk * (kChunk / 4) + 1];
    const float factor[kUnit] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const Unit value = widen(shared.stream[t][copy][chunk * 4 + part % 4]);
#pragma unroll
      for (int i = 0; i < kUnit; ++i) sum[t] = fmaf(value.value[i], factor[i], sum[t]);
    }
  }
  if (lane < kMixes) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) shared.of_warps[warp][t][lane] = sum[t];
  }
  if (half == 0) collapse(shared);
  __syncthreads();

  // Token t's coefficients are computed by block kSlices + t, its x by the first kSlices blocks.
  static_assert(kTokens <= kSlices);
  cluster.barrier_wait();
  if (thread < kTokens * kMixes) {
    const int t = thread / kMixes, i = thread % kMixes;
    float* to = &shared.products[half][slice][i];
    *cluster.map_shared_rank(to, kSlices + t) =
        sum_of_8(&shared.of_warps[0][t][i], kTokens * kMixes);
  }
  if (half == 0 && warp < (kTokens * kEighths + 31) / 32) {
    const int t = thread / kEighths, eighth = thread % kEighths;
    float2 squares{};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float2 more = shared.squares_of_chunk[min(t, kTokens - 1)][eighth][chunk];
      squares = {squares.x + more.x, squares.y + more.y};
    }
    squares = {sum_of_8_lanes(squares.x), sum_of_8_lanes(squares.y)};
    if (t < kTokens) {
      *cluster.map_shared_rank(&shared.x_squares[t][slice], eighth) = squares.y;
      if (eighth == 0)
        *cluster.map_shared_rank(&shared.stream_squares[slice], kSlices + t) = squares.x;
    }
  }
  cluster.barrier_arrive();
  cluster.barrier_wait();

  if (half == 0) {
    constexpr int kUnits = kSlice / kUnit;
    for (int i = thread; i < kTokens * kUnits; i += kThreads) {
      const int t = i / kUnits, unit = i % kUnits;
      if (first + t >= args.tokens) break;
      uint4 words = shared.x[t][unit];
      if (args.norm != nullptr)
        words = normed(words, shared.norm[unit],
                       inverse_root(sum_of_8(shared.x_squares[t], 1), args.norm_eps));
      store_unit(args.x + (first + t) * kDim + slice * kSlice, unit, words);
    }
  } else if (warp == 0 && slice < kTokens && first + slice < args.tokens) {
    float product = 0;
    if (lane < kMixes) {
      float of_slice[kSlices];
#pragma unroll
      for (int s = 0; s < kSlices; ++s)
        of_slice[s] = shared.products[0][s][lane] + shared.products[1][s][lane];
      product = sum_of_8(of_slice);
    } else if (lane == kMixes) {
      product = sum_of_8(shared.stream_squares, 1) / (kCopies * kDim);
    }
    begin_coefficients(args, first + slice, product, shared.base, shared.scale, shared.matrix);
    __syncwarp();
    if (lane == 0) finish_coefficients(args, first + slice, shared.matrix);
  }
}

template <int kTokens>
LaunchShape shape_of(int64_t tokens) {
  const int64_t clusters = (tokens + kTokens - 1) / kTokens;
  return {.blocks = static_cast<unsigned>(clusters * kBlocks),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared<kTokens>),
          .cluster = kBlocks};
}

template <int kTokens>
void launch_few(Queue& queue, const HyperCollapseArgs& args) {
  launch(queue, "hyper_collapse", collapse_few_kernel<kTokens>,
         shape_of<kTokens>(args.stream.extent(0)), Collapse(args));
}

}  // namespace

void collapse_few(Queue& queue, const HyperCollapseArgs& args) {
  static const int clusters =
      most_clusters("hyper_collapse", collapse_few_kernel<4>, shape_of<4>(4));
  if (args.stream.extent(0) <= 4 * clusters) {
    launch_few<4>(queue, args);
  } else {
    launch_few<8>(queue, args);
  }
}

}  // namespace cachalot::cuda
