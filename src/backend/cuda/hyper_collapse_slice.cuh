// What a block does for a slice of one token's stream: expand it, collapse it, and norm x with the
// blocks of the other slices, which are a cluster. For .cu files.
#pragma once

#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/hyper_collapse_order.h"
#include "backend/cuda/ptx/remote_copy.h"

namespace cachalot::cuda {

// Four dimensions each, of all copies.
inline constexpr int kSliceThreads = collapse_order::kChunks * collapse_order::kEighths;

struct SliceShared {
  float2 squares_of_chunk[collapse_order::kEighths][collapse_order::kChunks];
  float4 x_squares[collapse_order::kSlices];
  Barrier squares_there;
};

// Of a row of BF16: dimensions 4 * four and on.
__device__ inline uint2 load_four(const bf16* row, int four) {
  return reinterpret_cast<const uint2*>(row)[four];
}
__device__ inline void store_four(bf16* row, int four, uint2 words) {
  reinterpret_cast<uint2*>(row)[four] = words;
}
__device__ inline float4 widen(uint2 words) {
  return {low_value(words.x), high_value(words.x), low_value(words.y), high_value(words.y)};
}

// Four dimensions of all copies.
using StreamFour = uint2[collapse_order::kCopies];

__device__ inline void load_stream(StreamFour& words, const bf16* stream, int64_t token, int four) {
  using namespace collapse_order;
#pragma unroll
  for (int copy = 0; copy < kCopies; ++copy)
    words[copy] = load_four(stream + (token * kCopies + copy) * kDim, four);
}
__device__ inline void store_stream(bf16* stream, int64_t token, int four,
                                    const StreamFour& words) {
  using namespace collapse_order;
#pragma unroll
  for (int copy = 0; copy < kCopies; ++copy)
    store_four(stream + (token * kCopies + copy) * kDim, four, words[copy]);
}

__device__ inline float4 multiply_add(float a, const float4& b, const float4& c) {
  return {fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w)};
}

// As hyper_expand's own kernel adds.
__device__ inline void expand(StreamFour& words, const Expansion& by, int64_t token, int four) {
  using namespace collapse_order;
  const float4 y = widen(load_four(by.y + token * kDim, four));
  const float4 post = reinterpret_cast<const float4*>(by.post)[token];
  float4 comb[kCopies], before[kCopies];
#pragma unroll
  for (int j = 0; j < kCopies; ++j)
    comb[j] = reinterpret_cast<const float4*>(by.comb)[token * kCopies + j];
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

// Before the inputs are there; all threads of a block, whose cluster has met after it.
__device__ inline void begin_slice(SliceShared& shared) {
  if (threadIdx.x == 0) {
    barrier_init(&shared.squares_there, 1);
    fence_barrier_init();
    barrier_expect(&shared.squares_there, sizeof(shared.x_squares));
  }
  __syncthreads();
  cluster_arrive();
}

// x of the first kSliceThreads threads, whose stream `words` are. All threads of the block call;
// when all have what they loaded, one calls take_stream_square(the slice's sum of squares).
template <class TakeStreamSquare>
__device__ inline uint2 collapse_slice(const StreamFour& words, const float4& pre, const bf16* norm,
                                       const float4& norm_four, float norm_eps, int slice,
                                       SliceShared& shared, TakeStreamSquare take_stream_square) {
  using namespace collapse_order;
  const int thread = threadIdx.x;
  Eighth out{};
  if (thread < kSliceThreads) {
    out = collapse_eighth(words, pre);
    shared.squares_of_chunk[thread % kEighths][thread / kEighths] = out.squares;
  }
  __syncthreads();
  cluster_wait();
  if (thread < 32) {
    const int eighth = thread % kEighths;
    float2 squares{};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float2 more = shared.squares_of_chunk[eighth][chunk];
      squares = {squares.x + more.x, squares.y + more.y};
    }
    squares = {sum_of_8_lanes(squares.x), sum_of_8_lanes(squares.y)};
    static_assert(kEighths == kSlices);
    if (thread < kSlices) {
      store_counted(address_in_block(&shared.x_squares[slice], eighth), {squares.y, 0, 0, 0},
                    address_in_block(&shared.squares_there, eighth));
    }
    if (thread == 0) take_stream_square(squares.x);
  }
  barrier_wait_for_cluster(&shared.squares_there, 0);
  if (norm == nullptr) return out.x;
  float of_slice[kSlices];
#pragma unroll
  for (int s = 0; s < kSlices; ++s) of_slice[s] = shared.x_squares[s].x;
  const float root = inverse_root(sum_of_8(of_slice), norm_eps);
  const float4 value = widen(out.x);
  return {pack_values(norm_four.x * (value.x * root), norm_four.y * (value.y * root)),
          pack_values(norm_four.z * (value.z * root), norm_four.w * (value.w * root))};
}

}  // namespace cachalot::cuda
