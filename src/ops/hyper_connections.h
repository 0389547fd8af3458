// hyper_collapse, hyper_expand, draft_tap: the residual stream of `copies` parallel copies
// (spec: model, 3 and 3.1).
#pragma once

#include "ops/access.h"
#include "tensor/view.h"

namespace cachalot {

// x = rms_norm(RNE_BF16(sum_j pre_in[j] * stream[j]), norm), and from the same stream the
// coefficients of this sublayer: mixes = (flat(stream) . fn^T) * rsqrt(mean(flat^2) + norm_eps),
// then
//   pre_out[j] = sigmoid(mixes[j] * scale[0] + base[j]) + hc_eps
//   post[j]    = 2 sigmoid(mixes[m + j] * scale[1] + base[m + j])
//   comb[j][k] = Sinkhorn(softmax over k of (mixes[2m + jm + k] * scale[2] + base[..])), j = source
//   copy
// FP32 until x's roundings: BF16 after the collapse, BF16 after the norm. Without `norm` x is the
// collapse itself; without `fn` only x is computed (the last layer's end).
struct HyperCollapseArgs {
  View<const bf16> stream;   // [tokens, copies, dim]
  View<const float> pre_in;  // [tokens, copies]
  View<const float> fn;      // [(2 + copies) * copies, copies * dim], may be absent
  View<const float> base;    // [(2 + copies) * copies]
  View<const float> scale;   // [3]
  View<const bf16> norm;     // [dim], may be absent
  float norm_eps = 0;
  float hc_eps = 0;
  int64_t sinkhorn_iterations = 0;
  View<bf16> x;         // [tokens, dim], out
  View<float> pre_out;  // [tokens, copies], out; absent with fn
  View<float> post;     // [tokens, copies], out; absent with fn
  View<float> comb;     // [tokens, copies, copies], out; absent with fn

  template <class F>
  void fields(F&& f) const {
    f("stream", stream, Access::in);
    f("pre_in", pre_in, Access::in);
    f("fn", fn, Access::in);
    f("base", base, Access::in);
    f("scale", scale, Access::in);
    f("norm", norm, Access::in);
    f("x", x, Access::out);
    f("pre_out", pre_out, Access::out);
    f("post", post, Access::out);
    f("comb", comb, Access::out);
  }
};

// stream[k] = RNE_BF16(post[k] * y + sum_j comb[j][k] * stream[j]), in place. FP32 inside.
struct HyperExpandArgs {
  View<const bf16> y;      // [tokens, dim] the sublayer's output
  View<const float> post;  // [tokens, copies]
  View<const float> comb;  // [tokens, copies, copies]
  View<bf16> stream;       // [tokens, copies, dim], in and out

  template <class F>
  void fields(F&& f) const {
    f("y", y, Access::in);
    f("post", post, Access::in);
    f("comb", comb, Access::in);
    f("stream", stream, Access::inout);
  }
};

// taps[t][target] = RNE_BF16(mean over copies of stream[t]): what the draft head sees of a layer's
// input.
struct DraftTapArgs {
  View<const bf16> stream;  // [tokens, copies, dim]
  int64_t target = 0;       // which of the draft head's target layers this is
  View<bf16> taps;          // [tokens, targets, dim], in and out (one target is written)

  template <class F>
  void fields(F&& f) const {
    f("stream", stream, Access::in);
    f("taps", taps, Access::inout);
  }
};

}  // namespace cachalot
