// The queries of index_select, rotated and quantized, as the scoring kernels read them. For .cu
// files.
#pragma once

#include "backend/cuda/paged_address.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {

inline constexpr int kTensorHeads = 32, kTensorWidth = 128, kTensorGroups = 4;

// One row's query for the tensor cores. score = sum over h of weight[h] * 2 max(dot[h], 0) with
//   dot[h] = sum over groups g of scale[g][h] * key_scale[g] * (codes[h] . key codes)[g]
// The scale of a head's largest group is in weight; codes are E4M3 with what is left of a group's
// scale, times 2^6, and scale is 1. E4M3 has room for scales 2^-14 apart; in a row where they lie
// further apart (`wide`) scale holds what is left of them.
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
