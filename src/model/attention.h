// Attention over the window and the chosen compressed entries, with sinks, one shared key-value
// head and a grouped output projection (spec: model, 4).
#pragma once

#include "model/context.h"

namespace cachalot {

// x: [tokens, dim] normed; output: [tokens, dim]. KV sources extend their caches, index sources
// overwrite picks, every layer extends its window. In a draft block (shape.draft_block) every row
// sees the whole block, and nothing is kept.
template <class Q>
void attention(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
               const Picks& picks, View<bf16> output);

// The window row of every token, key and value in one, from a layer's normed input; allocated in
// the caller's arena scope.
template <class Q>
View<uint8_t> window_rows_of(Q& queue, const Context& context, int64_t layer, View<const bf16> x);

}  // namespace cachalot
