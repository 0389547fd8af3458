// image_attention: full attention among the patches of one picture.
#include <cuda_bf16.h>

#include <cfloat>

#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

// Queries and keys as they come and as they go, both [tokens, parts, heads, head_dim].
struct Turn {
  const Value* qkv;
  const float* frequencies;
  Value* turned;  // two parts
  int64_t columns, tokens, heads, head_dim;
};

// One block a token, one thread a pair of channels.
__global__ void turn_patches(const Turn turn) {
  wait_for_inputs();
  const int64_t token = blockIdx.x, half = turn.head_dim / 2, pairs = half / 2;
  const auto row = static_cast<float>(token / turn.columns);
  const auto column = static_cast<float>(token % turn.columns);
  const int64_t width = turn.heads * turn.head_dim;
  for (int64_t at = threadIdx.x; at < 2 * turn.heads * half; at += blockDim.x) {
    const int64_t i = at % half, head = at / half;  // the keys' heads come after the queries'
    const float angle =
        i < pairs ? row * turn.frequencies[i] : column * turn.frequencies[i - pairs];
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    const Value* from = turn.qkv + token * 3 * width + head * turn.head_dim + i;
    Value* to = turn.turned + token * 2 * width + head * turn.head_dim + i;
    const float a = __bfloat162float(from[0]), b = __bfloat162float(from[half]);
    to[0] = __float2bfloat16_rn(a * cosine - b * sine);
    to[half] = __float2bfloat16_rn(b * cosine + a * sine);
  }
}

struct Attention {
  const Value* qkv;
  const Value* turned;
  Value* o;
  int64_t tokens, heads, head_dim;
  float scale;
};

constexpr int kMaxChannels = 8;  // of a lane

// One warp a query: any head_dim up to 32 * kMaxChannels.
__global__ void attend(const Attention of) {
  wait_for_inputs();
  const int64_t query = int64_t{blockIdx.x} * 4 + threadIdx.x / 32, head = blockIdx.y;
  if (query >= of.tokens) return;
  const int lane = threadIdx.x % 32;
  const int64_t width = of.heads * of.head_dim;
  const Value* q = of.turned + query * 2 * width + head * of.head_dim;
  float out[kMaxChannels] = {};
  float top = -FLT_MAX, sum = 0;
  for (int64_t first = 0; first < of.tokens; first += 32) {
    const int64_t key = first + lane;
    float score = -FLT_MAX;
    if (key < of.tokens) {
      const Value* k = of.turned + key * 2 * width + width + head * of.head_dim;
      score = 0;
      for (int64_t i = 0; i < of.head_dim; ++i) {
        score += __bfloat162float(q[i]) * __bfloat162float(k[i]);
      }
      score *= of.scale;
    }
    float largest = score;
    for (int distance = 16; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    const float new_top = fmaxf(top, largest), shrink = expf(top - new_top);
    const float p = key < of.tokens ? expf(score - new_top) : 0;
    top = new_top;
    sum = sum * shrink + p;
    for (float& channel : out) channel *= shrink;
    for (int i = 0; i < 32 && first + i < of.tokens; ++i) {
      const float share = __shfl_sync(~0u, p, i);
      const Value* v = of.qkv + ((first + i) * 3 + 2) * width + head * of.head_dim;
#pragma unroll
      for (int c = 0; c < kMaxChannels; ++c) {
        if (lane + 32 * c < of.head_dim) out[c] += share * __bfloat162float(v[lane + 32 * c]);
      }
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
#pragma unroll
  for (int c = 0; c < kMaxChannels; ++c) {
    if (lane + 32 * c >= of.head_dim) continue;
    of.o[query * width + head * of.head_dim + lane + 32 * c] =
        __float2bfloat16_rn(__fdiv_rn(out[c], sum));
  }
}

}  // namespace

void image_attention(Queue& queue, const ImageAttentionArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.o.extent(0), heads = args.o.extent(1), head_dim = args.o.extent(2);
  CACHALOT_CHECK(head_dim <= 32 * kMaxChannels, "head_dim {}", head_dim);
  Scratch scratch(queue);
  const auto* qkv = reinterpret_cast<const Value*>(args.qkv.data);
  auto* turned = scratch.allocate<Value>(tokens * 2 * heads * head_dim);
  launch(queue, "image_attention", turn_patches,
         {.blocks = dim3(static_cast<unsigned>(tokens)), .threads = 256},
         Turn{qkv, args.frequencies.data, turned, args.columns, tokens, heads, head_dim});
  launch(queue, "image_attention", attend,
         {.blocks = dim3(static_cast<unsigned>((tokens + 3) / 4), static_cast<unsigned>(heads))},
         Attention{qkv, turned, reinterpret_cast<Value*>(args.o.data), tokens, heads, head_dim,
                   args.scale});
}

}  // namespace cachalot::cuda
