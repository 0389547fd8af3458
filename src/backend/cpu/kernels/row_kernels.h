// The row kernels: serial pieces of the operations that work on rows of activations and on cached
// rows, compiled once per instruction set. Everything here runs on one thread; the operations in
// ../*.cpp split the work. A row's result depends on nothing but its own operands: neither on how
// many rows a call gets nor on how calls are cut.
#pragma once

#include <cstdint>

#include "base/number_formats.h"

// base/cpu_info.h, which kernel objects must not include: it brings weak symbols.
namespace cachalot {
enum class Isa;
}

namespace cachalot::cpu {

struct RowKernels {
  // -------------------------------------------------------------------------- rows of activations
  // out[i] = x[i].
  void (*widen)(const bf16* x, int64_t n, float* out);
  // x[i] = RNE_BF16(norm[i] * (x[i] / sqrt(mean(x^2) + eps))), in place.
  void (*rms_norm)(bf16* x, int64_t n, const bf16* norm, float eps);
  // Rotates the last 2 * pairs of n channels, pairs (2i, 2i + 1); rounds them to BF16.
  void (*rotate)(bf16* x, int64_t n, const float* cosine, const float* sine, int64_t pairs);
  // y[r * y_stride + o] = x[r] . w[o], r < rows, o < outputs; FP32, one order per (r, o).
  void (*dots)(const bf16* x, int64_t x_stride, int64_t rows, const bf16* w, int64_t w_stride,
               int64_t outputs, int64_t n, float* y, int64_t y_stride);
  void (*dots_f32)(const float* x, int64_t x_stride, int64_t rows, const float* w, int64_t w_stride,
                   int64_t outputs, int64_t n, float* y, int64_t y_stride);
  // sum x^2.
  float (*square_sum)(const float* x, int64_t n);

  // ---------------------------------------------------------------------------- residual stream
  // n channels of copies that lie dim apart.
  // x[i] = RNE_BF16(sum_c pre[c] * stream[c][i]).
  void (*collapse)(const bf16* stream, const float* pre, int64_t copies, int64_t dim, int64_t n,
                   bf16* x);
  // stream[k][i] = RNE_BF16(post[k] * y[i] + sum_j comb[j][k] * stream[j][i]), in place.
  void (*expand)(const bf16* y, const float* post, const float* comb, int64_t copies, int64_t dim,
                 int64_t n, bf16* stream);
  // x[i] = RNE_BF16(sum_c stream[c][i] / copies).
  void (*average)(const bf16* stream, int64_t copies, int64_t dim, bf16* x);

  // ------------------------------------------------------------------------------- cached rows
  // BF16 -> packed rows (tensor/cache_rows.h), bit-equal to base/number_formats.h.
  void (*pack_window)(const bf16* x, int64_t n, uint8_t* row);
  void (*pack_latent)(const bf16* x, int64_t n, uint8_t* row);
  void (*pack_index_key)(const bf16* x, int64_t n, uint8_t* row);
  // Channels first .. first + count - 1 of a packed row of n channels -> FP32, exact. `first` is a
  // multiple of 32, and count too unless the channels are the last.
  void (*unpack_window)(const uint8_t* row, int64_t n, int64_t first, int64_t count, float* out);
  void (*unpack_latent)(const uint8_t* row, int64_t n, int64_t first, int64_t count, float* out);
  // E4M3 codes with an E8M0 scale per 32 -> BF16, exact.
  void (*unpack_e4m3)(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* out);

  // --------------------------------------------------------------------------------- attention
  // scores[i] := RNE_BF16(exp(scores[i] * scale - m)), m = max(scores) * scale; returns the sum of
  // the unrounded exponentials + exp(sink - m).
  float (*softmax)(float* scores, int64_t n, float scale, float sink);
  // o[h][i] += sum_k p[h][k] * keys[k][i], k ascending.
  void (*add_values)(const float* p, int64_t p_stride, int64_t heads, const float* keys,
                     int64_t key_stride, int64_t key_count, int64_t n, float* o, int64_t o_stride);
  // out[i] = RNE_BF16(x[i] / divisor).
  void (*divide)(const float* x, int64_t n, float divisor, bf16* out);

  // ----------------------------------------------------------------- compressor, indexer, engram
  // out[i] = RNE_BF16(sum_g w_g * kv[g][i]), w = softmax over g of gate[g][i].
  void (*pool)(const float* const* kv, const float* const* gate, int64_t group, int64_t n,
               bf16* out);
  // A query's heads for index_scores, from packed index key rows [heads][index_key_row_bytes].
  void (*prepare_index_query)(const uint8_t* rows, int64_t heads, int64_t width, void* query);
  // scores[j] = sum_h weights[h] * max(iq[h] . key[j], 0), h ascending, j < count <= kIndexTile.
  void (*index_scores)(const void* query, const float* weights, int64_t heads, int64_t width,
                       const uint8_t* const* keys, int64_t count, float* scores);
  // Maxima of disjoint parts of x, `vectors` elements each except a few, together all of it; at
  // most n / vectors + kMostLanes of them. Returns how many. NaNs are below -infinity here and
  // following.
  int64_t (*lane_maxima)(const float* x, int64_t n, int64_t vectors, float* out);
  // out[b] = the largest of x[b * size .. (b + 1) * size - 1], the last block may be shorter.
  void (*block_maxima)(const float* x, int64_t n, int64_t size, float* out);
  // How many x[i] >= least.
  int64_t (*count_at_least)(const float* x, int64_t n, float least);
  // The places of x[i] >= least, ascending; returns how many, or most + 1 where there are more than
  // `most`.
  int64_t (*list_at_least)(const float* x, int64_t n, float least, int32_t* places, int64_t most);
  // {sum h * qw * kw * key, sum h^2, sum key^2}.
  void (*engram_dots)(const bf16* h, const bf16* q_weight, const bf16* k_weight, const bf16* key,
                      int64_t n, float* dots);
  // h[i] = RNE_BF16(h[i] + gate * value[i]), in place.
  void (*add_scaled)(bf16* h, const bf16* value, float gate, int64_t n);

  // ------------------------------------------------------------------------------------- pictures
  // scores[r * stride + k] = q[r] . key k for kImageQueries queries [.., width] and all keys of
  // `panels`: [panels, width, kImagePanel], the keys of a panel side by side.
  void (*image_scores)(const float* q, int64_t width, const float* keys, int64_t panels,
                       float* scores, int64_t stride);
  // scores[i] := exp(scores[i] * scale - m), m = max(scores) * scale; returns their sum.
  float (*image_softmax)(float* scores, int64_t n, float scale);
  // o[r][i] += sum_k p[r * stride + k] * values[k][i] for kImageQueries rows, k ascending; width is
  // a multiple of kImagePanel.
  void (*image_values)(const float* p, int64_t stride, const float* values, int64_t keys,
                       int64_t width, float* o);
  // h[i] = RNE_BF16(RNE_BF16(silu(gate[i])) * up[i]).
  void (*gated_unit)(const bf16* gate, const bf16* up, int64_t n, bf16* h);
  // x[i] = RNE_BF16(x[i] + update[i]), in place.
  void (*add_rows)(bf16* x, const bf16* update, int64_t n);
  // out[i] = RNE_BF16(x[i] + bias[i]).
  void (*add_bias)(const float* x, const bf16* bias, int64_t n, bf16* out);
};

// Queries that a call of image_scores or image_values takes, and keys of a panel: two vectors of
// the widest instruction set.
inline constexpr int64_t kImageQueries = 12;
inline constexpr int64_t kImagePanel = 32;

// Most index keys one call of index_scores takes, and their widest.
inline constexpr int64_t kIndexTile = 64;
inline constexpr int64_t kMostIndexWidth = 256;
inline constexpr int64_t kMaxCopies = 8;
// Floats of the widest vector.
inline constexpr int64_t kMostLanes = 16;

// Bytes of a prepared query: values and, per 32 of them, a scale and a correction.
constexpr int64_t index_query_bytes(int64_t heads, int64_t width) {
  return heads * (width + width / 32 * 8);
}

const RowKernels& row_kernels_for(Isa isa);  // ../queue.cpp

// One per file of this directory.
extern const RowKernels kGenericRowKernels;
extern const RowKernels kAvx2RowKernels;
extern const RowKernels kAvx512RowKernels;
extern const RowKernels kVnniRowKernels;  // AVX-512 with its dot product of bytes

}  // namespace cachalot::cpu
