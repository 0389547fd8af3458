// linear, grouped_linear, head: matrix products with the released quantization (spec: model, 2.2
// to 2.5).
#pragma once

#include "ops/access.h"
#include "tensor/matrix.h"

namespace cachalot {

// y = x . weight^T. An FP8 weight gets x quantized to E4M3 in groups of 32 first (2.2); a BF16
// weight takes x as it is. FP32 accumulation, plus bias; y = RNE_BF16, then optionally y =
// rms_norm(y, norm) over the row: RNE_BF16(norm * y / sqrt(mean(y^2) + norm_eps)). Exactly one of y
// and y_f32 is present; y_f32 takes the FP32 sums unrounded (and neither norm nor bias). The order
// of additions along `in` is the same for every number of rows.
struct LinearArgs {
  View<const bf16> x;     // [tokens, in]
  DenseMatrix weight;     // [out, in]
  View<const bf16> bias;  // [out], may be absent
  View<const bf16> norm;  // [out], may be absent
  float norm_eps = 0;
  View<bf16> y;       // [tokens, out], out
  View<float> y_f32;  // [tokens, out], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("weight.codes", weight.codes, Access::in);
    f("weight.scales", weight.scales, Access::in);
    f("weight.values", weight.values, Access::in);
    f("bias", bias, Access::in);
    f("norm", norm, Access::in);
    f("y", y, Access::out);
    f("y_f32", y_f32, Access::out);
  }
};

// y[t][g] = RNE_BF16(x[t][g] . weight[g]^T): one matrix per group, the FP8 weight expanded exactly,
// x not quantized (wo_a).
struct GroupedLinearArgs {
  View<const bf16> x;  // [tokens, groups, in]
  DenseMatrix weight;  // [groups * out, in] FP8 or BF16
  View<bf16> y;        // [tokens, groups, out], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("weight.codes", weight.codes, Access::in);
    f("weight.scales", weight.scales, Access::in);
    f("weight.values", weight.values, Access::in);
    f("y", y, Access::out);
  }
};

// logits[i] = x[rows[i]] . weight^T in FP32, weights promoted from BF16.
struct HeadArgs {
  View<const bf16> x;        // [tokens, dim]
  View<const int32_t> rows;  // [outputs] which tokens
  View<const bf16> weight;   // [vocab, dim]
  View<float> logits;        // [outputs, vocab], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("rows", rows, Access::in);
    f("weight", weight, Access::in);
    f("logits", logits, Access::out);
  }
};

}  // namespace cachalot
