// hyper_collapse of up to eight tokens (docs/kernels/hyper_connections.md): x at once, by a cluster
// of a block per slice for each token, and on its way the expansion of the stream before; the
// coefficients apart (hyper_mixes.h).
#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_mixes.cuh"
#include "backend/cuda/ptx/remote_copy.h"

namespace cachalot::cuda {

namespace {

using namespace collapse_order;

constexpr int kThreads = kChunks * kEighths;  // four dimensions each, of all copies
constexpr int kMixThreads = 32 * MixShared::kWarps;

__device__ uint2 load_four(const bf16* row, int four) {
  return reinterpret_cast<const uint2*>(row)[four];
}
__device__ void store_four(bf16* row, int four, uint2 words) {
  reinterpret_cast<uint2*>(row)[four] = words;
}
__device__ float4 widen(uint2 words) {
  return {low_value(words.x), high_value(words.x), low_value(words.y), high_value(words.y)};
}
__device__ float4 multiply_add(float a, const float4& b, const float4& c) {
  return {fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w)};
}

// As hyper_expand's own kernel adds.
__device__ void expand(uint2 (&words)[kCopies], const float4& y, const float4& post,
                       const float4 (&comb)[kCopies]) {
  float4 before[kCopies];
#pragma unroll
  for (int j = 0; j < kCopies; ++j) before[j] = widen(words[j]);
  const auto of_copy = [](const float4& four, int copy) {
    return copy == 0 ? four.x : copy == 1 ? four.y : copy == 2 ? four.z : four.w;
  };
#pragma unroll
  for (int k = 0; k < kCopies; ++k) {
    float4 out{};
#pragma unroll
    for (int j = 0; j < kCopies; ++j) out = multiply_add(of_copy(comb[j], k), before[j], out);
    out = multiply_add(of_copy(post, k), y, out);
    words[k] = {pack_values(out.x, out.y), pack_values(out.z, out.w)};
  }
}

template <bool kExpands>
__global__ void __launch_bounds__(kThreads)
    collapse_kernel(const Collapse args, const Expansion expansion, float* stream_squares) {
  __shared__ float2 squares_of_chunk[kEighths][kChunks];
  __shared__ float4 x_squares[kSlices];
  __shared__ Barrier squares_there;
  const int thread = threadIdx.x, slice = blockIdx.x % kSlices;
  const int64_t token = blockIdx.x / kSlices;
  if (thread == 0) {
    barrier_init(&squares_there, 1);
    fence_barrier_init();
    barrier_expect(&squares_there, sizeof(x_squares));
  }
  __syncthreads();
  cluster_arrive();
  let_next_start();
  // Of a row: dimensions 4 * four and on.
  const int four = slice * kThreads + thread;
  float4 norm{};
  if (args.norm != nullptr) norm = widen(load_four(args.norm, four));
  wait_for_inputs();

  uint2 words[kCopies];
#pragma unroll
  for (int copy = 0; copy < kCopies; ++copy)
    words[copy] = load_four(args.stream + (token * kCopies + copy) * kDim, four);
  const float4 pre = reinterpret_cast<const float4*>(args.pre_in)[token];
  if constexpr (kExpands) {
    const float4 y = widen(load_four(expansion.y + token * kDim, four));
    const float4 post = reinterpret_cast<const float4*>(expansion.post)[token];
    float4 comb[kCopies];
#pragma unroll
    for (int j = 0; j < kCopies; ++j)
      comb[j] = reinterpret_cast<const float4*>(expansion.comb)[token * kCopies + j];
    expand(words, y, post, comb);
#pragma unroll
    for (int copy = 0; copy < kCopies; ++copy)
      store_four(expansion.stream + (token * kCopies + copy) * kDim, four, words[copy]);
  }
  const Eighth out = collapse_eighth(words, pre);
  squares_of_chunk[thread % kEighths][thread / kEighths] = out.squares;
  __syncthreads();
  cluster_wait();
  if (thread < 32) {
    const int eighth = thread % kEighths;
    float2 squares{};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float2 more = squares_of_chunk[eighth][chunk];
      squares = {squares.x + more.x, squares.y + more.y};
    }
    squares = {sum_of_8_lanes(squares.x), sum_of_8_lanes(squares.y)};
    static_assert(kEighths == kSlices);
    if (thread < kSlices) {
      store_counted(address_in_block(&x_squares[slice], eighth), {squares.y, 0, 0, 0},
                    address_in_block(&squares_there, eighth));
    }
    if (thread == 0) stream_squares[token * kSlices + slice] = squares.x;
  }
  barrier_wait_for_cluster(&squares_there, 0);
  uint2 x = out.x;
  if (args.norm != nullptr) {
    float of_slice[kSlices];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) of_slice[s] = x_squares[s].x;
    const float root = inverse_root(sum_of_8(of_slice), args.norm_eps);
    const float4 value = widen(x);
    x = {pack_values(norm.x * (value.x * root), norm.y * (value.y * root)),
         pack_values(norm.z * (value.z * root), norm.w * (value.w * root))};
  }
  store_four(args.x + token * kDim, four, x);
}

__global__ void __launch_bounds__(kMixThreads) mixes_kernel(const Mixes of) {
  extern __shared__ uint4 dynamic[];
  compute_mixes<kMixThreads>(of, static_cast<int>(blockIdx.x),
                             *reinterpret_cast<MixShared*>(dynamic));
}

// What the queue keeps for the sums of a collapse.
float* kept_sums(Queue& queue) {
  static const char kSums = 0;
  void* sums = queue.kept(&kSums);
  constexpr int64_t kWords = kMostMixTokens * (kMixBlocks * kMixes + kSlices);
  if (sums == nullptr) sums = queue.keep(&kSums, nullptr, kWords * sizeof(float));
  return static_cast<float*>(sums);
}

}  // namespace

void collapse_apart(Queue& queue, const HyperCollapseArgs& args,
                    const std::optional<HyperExpandArgs>& expand) {
  const int64_t tokens = args.stream.extent(0);
  float* const squares = kept_sums(queue);
  auto* const sums = reinterpret_cast<uint32_t*>(squares + kMostMixTokens * kSlices);
  const Collapse collapse(args);
  const LaunchShape shape{
      .blocks = static_cast<unsigned>(tokens * kSlices), .threads = kThreads, .cluster = kSlices};
  if (expand) {
    launch(queue, "hyper_collapse", collapse_kernel<true>, shape, collapse,
           Expansion{expand->y.data, expand->post.data, expand->comb.data, expand->stream.data},
           squares);
  } else {
    launch(queue, "hyper_collapse", collapse_kernel<false>, shape, collapse, Expansion{}, squares);
  }
  queue.held().hold(queue, Mixes{collapse, squares, sums});
}

void start_mixes(Queue& queue, const Mixes& mixes) {
  launch(queue, "hyper_collapse", mixes_kernel,
         {.blocks = kMixBlocks, .threads = kMixThreads, .shared_bytes = sizeof(MixShared)}, mixes);
}

}  // namespace cachalot::cuda
