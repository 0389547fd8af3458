// Attention on matrix registers, for instruction sets that have them: one row's scores and weighted
// values, both as products of BF16 values. Keys, queries and the rounded exponentials are exact in
// BF16 (contract: ops/attention.h).
//
// An element's additions depend neither on the other heads nor on how keys and channels are cut.
#pragma once

#include <cstdint>

#include "base/number_formats.h"

// base/cpu_info.h, which kernel objects must not include: it brings weak symbols.
namespace cachalot {
enum class Isa;
}

namespace cachalot::cpu {

// Keys of a piece of scores start at a multiple of this; rows of scores and heads are padded to it.
inline constexpr int64_t kAttentionTile = 16;
// Keys that weigh_values() takes together: rows of weights are padded to a multiple of it.
inline constexpr int64_t kAttentionKeys = 32;
// Channels of the values of a call: a block of the packed rows.
inline constexpr int64_t kAttentionChannels = 32;

// Packed rows a row attends to: `window` window rows, then latents, `count` together, of `channels`
// channels each.
struct AttendedRows {
  const uint8_t* const* rows;
  int64_t window, count, channels;
};

struct AttentionKernels {
  // q [heads, channels] -> what score_keys() reads, query_bytes() aligned to 64.
  int64_t (*query_bytes)(int64_t heads, int64_t channels);
  void (*pack_queries)(const bf16* q, int64_t heads, int64_t channels, void* queries);

  // scores[h * stride + k] = q[h] . key k for keys first .. first + count - 1, and anything up to
  // the next multiple of kAttentionTile. stride is a multiple of kAttentionTile.
  void (*score_keys)(const void* queries, int64_t heads, const AttendedRows& keys, int64_t first,
                     int64_t count, float* scores, int64_t stride, void* scratch);

  // A head's n scores become the weights RNE_BF16(exp(score * scale - m)), m = max(scores) * scale:
  // BF16 values from the row's start on, zeros up to the next multiple of kAttentionKeys. Returns
  // the sum of the unrounded exponentials + exp(sink - m).
  float (*weigh)(float* scores, int64_t n, float scale, float sink);

  // o[h * stride + channel + i] = RNE_BF16(factors[h] * sum_k weights[h][k] * key k [channel + i]),
  // i < kAttentionChannels. Rows of weights lie score_stride floats apart and are a multiple of
  // kAttentionTile.
  void (*weigh_values)(const float* weights, int64_t score_stride, int64_t heads,
                       const AttendedRows& keys, int64_t channel, const float* factors, bf16* o,
                       int64_t stride, void* scratch);

  // Bytes of scratch, aligned to 64, that score_keys() and weigh_values() need for as many keys.
  int64_t (*scratch_bytes)(int64_t keys, int64_t channels);
};

// nullptr: none.
const AttentionKernels* attention_kernels_for(Isa isa);

extern const AttentionKernels kAmxAttentionKernels;

}  // namespace cachalot::cpu
