// residual_norm, image_attention, gated_unit, unfold_cells, gelu: the vision tower between its
// linear layers, and the aligner (spec: vision, section 4). A token here is a patch of one picture.
#pragma once

#include "ops/access.h"
#include "tensor/view.h"

namespace cachalot {

// stream = RNE_BF16(stream + update), then x = RNE_BF16(norm * stream / sqrt(mean(stream^2) +
// norm_eps)) of the rounded stream, FP32 inside. Without `update` the stream stays as it is.
struct ResidualNormArgs {
  View<const bf16> update;  // [tokens, dim] the last sublayer's output, may be absent
  View<const bf16> norm;    // [dim]
  float norm_eps = 0;
  View<bf16> stream;  // [tokens, dim], in and out
  View<bf16> x;       // [tokens, dim], out

  template <class F>
  void fields(F&& f) const {
    f("update", update, Access::in);
    f("norm", norm, Access::in);
    f("stream", stream, Access::inout);
    f("x", x, Access::out);
  }
};

// Full attention among the patches of one picture: token t is the patch at row t / columns and
// column t % columns. Queries and keys are rotated in two dimensions first: channel i of a head's
// lower half pairs with channel i of its upper half, by the angle row * frequencies[i] for i <
// pairs and column * frequencies[i - pairs] from there on:
//   RNE_BF16(a cos - b sin), RNE_BF16(b cos + a sin)
// o = RNE_BF16(softmax(scale * q . k) . v). Scores, softmax (maximum over all keys of the row) and
// the sum over keys (ascending) in FP32, probabilities unrounded.
struct ImageAttentionArgs {
  View<const bf16> qkv;           // [tokens, 3, heads, head_dim]
  int64_t columns = 0;            // patches of a row; divides tokens
  View<const float> frequencies;  // [pairs = head_dim / 4] angle per patch
  float scale = 0;
  View<bf16> o;  // [tokens, heads, head_dim], out

  template <class F>
  void fields(F&& f) const {
    f("qkv", qkv, Access::in);
    f("frequencies", frequencies, Access::in);
    f("o", o, Access::out);
  }
};

// h[i] = RNE_BF16(RNE_BF16(silu(gate_up[i])) * gate_up[width + i]), i < width.
struct GatedUnitArgs {
  View<const bf16> gate_up;  // [tokens, 2 * width]
  View<bf16> h;              // [tokens, width], out

  template <class F>
  void fields(F&& f) const {
    f("gate_up", gate_up, Access::in);
    f("h", h, Access::out);
  }
};

// The plane of patches, row by row, cut into cells of ratio x ratio, zeros beyond its bottom and
// right: cells[c][channel * ratio^2 + dy * ratio + dx], cells row by row.
struct UnfoldCellsArgs {
  View<const bf16> x;   // [tokens, dim]
  int64_t columns = 0;  // patches of a row; divides tokens
  int64_t ratio = 0;
  View<bf16> cells;  // [ceil(rows / ratio) * ceil(columns / ratio), dim * ratio^2], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("cells", cells, Access::out);
  }
};

// x = RNE_BF16(x * 0.5 * (1 + erf(x / sqrt(2)))), in place, FP32 inside.
struct GeluArgs {
  View<bf16> x;  // [tokens, width], in and out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::inout);
  }
};

}  // namespace cachalot
