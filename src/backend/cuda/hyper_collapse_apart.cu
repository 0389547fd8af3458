// hyper_collapse of up to some hundred tokens (docs/kernels/hyper_connections.md): x at once, by a
// cluster of a block per slice for each token, and on its way the expansion of the stream before;
// the coefficients apart (hyper_mixes.h).
#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_collapse_slice.cuh"
#include "backend/cuda/hyper_mixes.cuh"
#include "backend/cuda/quantize_fp8.cuh"

namespace cachalot::cuda {

namespace {

using namespace collapse_order;

constexpr int kMixThreads = 32 * MixShared::kWarps;

// Four columns of x. A warp has 128 of a row, whose scales are a word.
__device__ void store_codes(const QuantizedRows& to, int64_t token, int four, uint2 x) {
  const FourCodes codes = quantize_four(x);
  reinterpret_cast<uint32_t*>(to.codes + token * kDim)[four] = codes.codes;
  uint32_t scales = 0;
#pragma unroll
  for (int group = 0; group < 4; ++group)
    scales |= __shfl_sync(~0u, codes.scale, 8 * group) << (8 * group);
  if (four % 32 == 0) to.scales[four / 32 * to.scale_stride + token] = scales;
}

template <bool kExpands>
__global__ void __launch_bounds__(kSliceThreads)
    collapse_kernel(const Collapse args, const Expansion expansion, uint32_t* stream_squares,
                    const QuantizedRows quantized) {
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
  if (quantized.codes != nullptr) store_codes(quantized, token, four, x);
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
           Expansion(*expand), mixes.stream_squares, mixes.quantized);
  } else {
    launch(queue, "hyper_collapse", collapse_kernel<false>, shape, mixes.collapse, Expansion(),
           mixes.stream_squares, mixes.quantized);
  }
  queue.held().hold(queue, mixes);
}

Mixes mixes_of(Queue& queue, const HyperCollapseArgs& args) {
  static const char kSums = 0;
  void* kept = queue.kept(&kSums);
  constexpr int64_t kSquares = kMostRowTokens * kSlices;
  constexpr int64_t kSumWords = kMostRowTokens * kMixBlocks * kMixes;
  // Behind the words that wait, where scales and codes begin, at multiples of 128 words.
  constexpr int64_t kScalesAt = (kSquares + kSlices + kSumWords + 127) / 128 * 128;
  constexpr int64_t kScaleStride = 128, kCodesAt = kScalesAt + kDim / 128 * kScaleStride;
  constexpr int64_t kWords = kCodesAt + kMostQuantizedTokens * kDim / 4;
  static_assert(kMostQuantizedTokens <= kScaleStride);
  if (kept == nullptr) kept = queue.keep(&kSums, nullptr, kWords * sizeof(uint32_t));
  auto* const squares = static_cast<uint32_t*>(kept);
  Mixes mixes{.collapse = Collapse(args),
              .stream_squares = squares,
              .readers = squares + kSquares,
              .sums = squares + kSquares + kSlices};
  const int64_t tokens = args.stream.extent(0);
  if (tokens > kMostMixTokens && tokens <= kMostQuantizedTokens)
    mixes.quantized = {.rows = tokens,
                       .columns = kDim,
                       .codes = reinterpret_cast<uint8_t*>(squares + kCodesAt),
                       .scales = squares + kScalesAt,
                       .scale_stride = kScaleStride};
  return mixes;
}

void start_mixes(Queue& queue, const Mixes& mixes) {
  if (mixes.collapse.tokens > kMostMixTokens) return start_mixes_of_rows(queue, mixes);
  launch(queue, "hyper_collapse", mixes_kernel,
         {.blocks = kMixBlocks, .threads = kMixThreads, .shared_bytes = sizeof(MixShared)}, mixes);
}

}  // namespace cachalot::cuda
