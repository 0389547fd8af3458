// The compressor of a KV source: groups of tokens become latents, which every layer up to the next
// source attends to, and index keys, by which they are found (spec: model, 5).
#pragma once

#include "model/context.h"

namespace cachalot {

// x: [tokens, dim] the layer's normed attention input. What is allocated is used as long as a queue
// holds operations back: until the caller's scope ends.
template <class Q>
void compress(Q& queue, const Context& context, int64_t layer, View<const bf16> x);

}  // namespace cachalot
