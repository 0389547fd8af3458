// hyper_collapse of up to some hundred tokens (docs/kernels/hyper_connections.md): x at once, by a
// cluster of a block per slice for each token, and on its way the expansion of the stream before;
// the coefficients apart (hyper_mixes.h).
#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_collapse_slice.cuh"
#include "backend/cuda/hyper_mixes.cuh"

namespace cachalot::cuda {

namespace {

using namespace collapse_order;

constexpr int kMixThreads = 32 * MixShared::kWarps;

template <bool kExpands>
__global__ void __launch_bounds__(kSliceThreads)
    collapse_kernel(const Collapse args, const Expansion expansion, uint32_t* stream_squares) {
  __shared__ SliceShared shared;
  const int slice = blockIdx.x % kSlices, four = slice * kSliceThreads + threadIdx.x;
  const int64_t token = blockIdx.x / kSlices;
  begin_slice(shared);
  let_next_start();
  float4 norm{};
  if (args.norm != nullptr) norm = widen(load_four(args.norm, four));
  wait_for_inputs();

  StreamFour words;
  load_stream(words, args.stream, token, four);
  const float4 pre = reinterpret_cast<const float4*>(args.pre_in)[token];
  if constexpr (kExpands) {
    expand(words, expansion, token, four);
    store_stream(expansion.stream, token, four, words);
  }
  const uint2 x = collapse_slice(
      words, pre, args.norm, norm, args.norm_eps, slice, shared,
      [&](float square) { leave_sum(stream_squares + token * kSlices + slice, square); });
  store_four(args.x + token * kDim, four, x);
}

__global__ void __launch_bounds__(kMixThreads) mixes_kernel(const Mixes of) {
  extern __shared__ uint4 dynamic[];
  compute_mixes<kMixThreads>(of, static_cast<int>(blockIdx.x),
                             *reinterpret_cast<MixShared*>(dynamic));
}

}  // namespace

void collapse_apart(Queue& queue, const HyperCollapseArgs& args,
                    const std::optional<HyperExpandArgs>& expand) {
  const Mixes mixes = mixes_of(queue, args);
  const LaunchShape shape{.blocks = static_cast<unsigned>(mixes.collapse.tokens * kSlices),
                          .threads = kSliceThreads,
                          .cluster = kSlices};
  if (expand) {
    launch(queue, "hyper_collapse", collapse_kernel<true>, shape, mixes.collapse,
           Expansion(*expand), mixes.stream_squares);
  } else {
    launch(queue, "hyper_collapse", collapse_kernel<false>, shape, mixes.collapse, Expansion(),
           mixes.stream_squares);
  }
  queue.held().hold(queue, mixes);
}

Mixes mixes_of(Queue& queue, const HyperCollapseArgs& args) {
  static const char kSums = 0;
  void* kept = queue.kept(&kSums);
  constexpr int64_t kSquares = kMostRowTokens * kSlices;
  constexpr int64_t kWords = kSquares + kSlices + kMostRowTokens * kMixBlocks * kMixes;
  if (kept == nullptr) kept = queue.keep(&kSums, nullptr, kWords * sizeof(uint32_t));
  auto* const squares = static_cast<uint32_t*>(kept);
  return {.collapse = Collapse(args),
          .stream_squares = squares,
          .readers = squares + kSquares,
          .sums = squares + kSquares + kSlices};
}

void start_mixes(Queue& queue, const Mixes& mixes) {
  if (mixes.collapse.tokens > kMostMixTokens) return start_mixes_of_rows(queue, mixes);
  launch(queue, "hyper_collapse", mixes_kernel,
         {.blocks = kMixBlocks, .threads = kMixThreads, .shared_bytes = sizeof(MixShared)}, mixes);
}

}  // namespace cachalot::cuda
