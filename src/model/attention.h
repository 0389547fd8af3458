// Attention over the window and the chosen compressed entries, with sinks, one shared key-value
// head and a grouped output projection (spec: model, 4).
#pragma once

#include "model/context.h"

namespace cachalot {

// x: [tokens, dim] normed; output: [tokens, dim]. KV sources extend their caches, index sources
// overwrite picks, every layer extends its window.
template <class Q>
void attention(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
               const Picks& picks, View<bf16> output);

}  // namespace cachalot
