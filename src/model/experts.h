// Mixture of experts with a text and an image routing bias (spec: model, 7).
#pragma once

#include "model/context.h"

namespace cachalot {

// x: [tokens, dim] normed; output: [tokens, dim]. top_k experts per token.
template <class Q>
void experts(Q& queue, const Context& context, int64_t layer, const ExpertsWeights& weights,
             int64_t top_k, View<const bf16> x, View<bf16> output);

}  // namespace cachalot
