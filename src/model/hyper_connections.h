// Manifold-constrained hyper-connections with delayed mixes: every sublayer's input is collapsed
// with weights the sublayer before it computed (spec: model, 3 and 3.1).
#pragma once

#include "model/context.h"

namespace cachalot {

// A sublayer's input and how its output will be spread over the copies again.
struct Collapsed {
  View<bf16> x;      // [tokens, dim] normed
  View<float> post;  // [tokens, copies]
  View<float> comb;  // [tokens, copies, copies] from copy, to copy
};

// Collapses with `mix`, which the sublayer before computed, and computes the mix for the sublayer
// after into `next_mix`. Results are allocated in the caller's arena scope.
template <class Q>
Collapsed collapse(Q& queue, const Context& context, View<const bf16> stream, View<const float> mix,
                   const HyperConnectionWeights& weights, View<const bf16> norm,
                   View<float> next_mix);

// Spreads the sublayer's output over the copies and mixes them, in place.
template <class Q>
void expand(Q& queue, const Collapsed& collapsed, View<const bf16> output, View<bf16> stream);

}  // namespace cachalot
