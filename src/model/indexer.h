// The two-level indexer: which compressed entries each token attends to, for its own layer and
// every layer up to the next index source (spec: model, 6).
#pragma once

#include "model/context.h"

namespace cachalot {

// x: [tokens, dim] normed attention input; query_latent: [tokens, q_lora_rank]. Overwrites picks.
template <class Q>
void select_entries(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
                    View<const bf16> query_latent, const Picks& picks);

}  // namespace cachalot
