// image_attention: full attention among the patches of one picture.
#include "backend/cuda/image_attention_64.cuh"
#include "backend/cuda/image_attention_any.cuh"
#include "backend/cuda/tensor_map.h"

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

// Boxes of one head's channels in 64 rows.
CUtensorMap rows_map(const Value* rows, int64_t tokens, int64_t heads) {
  return tensor_map(rows, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           .rows = tokens,
                           .columns = heads * kImageHead,
                           .row_bytes = heads * kImageHead * 2,
                           .box_rows = 64,
                           .box_columns = kImageHead});
}

}  // namespace

void image_attention(Queue& queue, const ImageAttentionArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.o.extent(0), heads = args.o.extent(1), head_dim = args.o.extent(2);
  Scratch scratch(queue);
  const auto* qkv = reinterpret_cast<const Value*>(args.qkv.data);
  auto* turned = scratch.allocate<Value>(tokens * 2 * heads * head_dim);
  launch(queue, "image_attention", turn_patches,
         {.blocks = dim3(static_cast<unsigned>(tokens)), .threads = 256},
         Turn{qkv, args.frequencies.data, turned, args.columns, tokens, heads, head_dim});
  const ImageHeads of{qkv,      turned,    reinterpret_cast<Value*>(args.o.data), tokens, heads,
                      head_dim, args.scale};
  // The fast kernel takes the largest score for the largest product of scale and score.
  const bool aligned = reinterpret_cast<uintptr_t>(qkv) % 16 == 0;
  if (head_dim == kImageHead && args.scale > 0 && aligned) {
    const int64_t queries = kImageGroups * kImageQueries;
    launch(queue, "image_attention", attend_64,
           {.blocks = dim3(static_cast<unsigned>((tokens + queries - 1) / queries),
                           static_cast<unsigned>(heads)),
            .threads = 128 * kImageGroups + 128,
            .shared_bytes = sizeof(ImageShared) + 1024},
           rows_map(turned, tokens, 2 * heads), rows_map(qkv, tokens, 3 * heads), of);
    return;
  }
  CACHALOT_CHECK(head_dim <= 32 * kMaxChannels, "head_dim {}", head_dim);
  launch(queue, "image_attention", attend_any,
         {.blocks = dim3(static_cast<unsigned>((tokens + 3) / 4), static_cast<unsigned>(heads))},
         of);
}

}  // namespace cachalot::cuda
