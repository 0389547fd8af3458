// The queries of index_select, rotated and quantized, as the scoring kernels read them. For .cu
// files.
#pragma once

#include "backend/cuda/block_formats.h"
#include "backend/cuda/paged_address.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {

inline constexpr int kTensorHeads = 32, kTensorWidth = 128, kTensorGroups = 4;

// Powers of two that the scale of a key's group may lie above that of its first one for the sums
// to be in units of the latter, and those that scores are too small by then: 14 of E5M2 keys and
// kKeyRoom, less 2 of the queries.
inline constexpr int kKeyRoom = 6, kScoreShift = 14 + kKeyRoom - 2;
// Those that may lie between the scales of a head's groups.
inline constexpr int kQueryRoom = 11;

// One row's query for the tensor cores.
//   score = key_scale[0] * sum over heads h of weight[h] * max(dot[h], 0)
//   dot[h] = sum over groups g of ratio[g] * scale[g][h] * (codes[h] . key codes)[g]
//   ratio[0] = 1, else ratio[g] = 2^-kKeyRoom * key_scale[g] / key_scale[0]
// The scale of a head's largest group and 2^kScoreShift are in weight. Codes are E5M2 with what is
// left of a group's scale, times 4, those of the first group times 2^-kKeyRoom too; scale is 1.
// With keys times 2^-14 a group's product is at most 0.29, the first one's 0.005: where no ratio is
// above 1 dot stays below 1. In a row where scales lie more than 2^kQueryRoom apart (`wide`) scale
// holds what is left of them.
struct TensorQueryScales {
  float weight[kTensorHeads];
  float scale[kTensorGroups][kTensorHeads];
  uint32_t wide;
  uint32_t unused[3];  // whole 16 bytes, for the bulk copy
};
static_assert(sizeof(TensorQueryScales) % 16 == 0);

// Codes of a row: B of the products, N = 32 heads by K = 128 channels, as they lie in shared memory
// (swizzle_128). Column n is head tensor_head(n); in a group of 32, channel 2i is at byte i and
// channel 2i + 1 at byte 16 + i, because a thread expands the low and the high nibbles of a word of
// keys to one register each.
inline constexpr int kTensorQueryBytes = kTensorHeads * kTensorWidth;
// A thread's columns of an accumulator are eight neighbouring heads, which it adds in order.
__host__ __device__ constexpr int tensor_column(int head) {
  return head % 8 / 2 * 8 + head / 8 * 2 + head % 2;
}

struct QueryMaking {
  DeviceRows rows;
  int32_t heads, width, pairs;
  const bf16 *q, *weights;
  float weight_scale;
  const float* frequencies;

  __device__ float weight(int64_t t, int32_t head) const {
    return rounded_to_bf16(widened(weights[t * heads + head]) * weight_scale);
  }
};

struct TensorQueries {
  uint8_t* codes;             // [tokens, kTensorQueryBytes]
  TensorQueryScales* scales;  // [tokens]
};
// Any shape: packed rows as index keys are, and the weights.
struct PlainQueries {
  uint8_t* packed;  // [tokens, heads, row bytes]
  float* weights;   // [tokens, heads]
};

void make_tensor_queries(Queue& queue, const QueryMaking& of, const TensorQueries& to);
void make_plain_queries(Queue& queue, const QueryMaking& of, const PlainQueries& to);

}  // namespace cachalot::cuda
