// The two-level indexer: which compressed entries each token attends to, for its own layer and
// every layer up to the next index source (spec: model, 6).
#pragma once

#include "model/context.h"

namespace cachalot {

// How much each of the indexer's heads counts, [tokens, heads]. x: [tokens, dim] normed attention
// input.
template <class Q>
View<const bf16> index_weights(Q& queue, const Context& context, int64_t layer, View<const bf16> x);

// query_latent: [tokens, q_lora_rank]. Overwrites picks.
template <class Q>
void select_entries(Q& queue, const Context& context, int64_t layer, View<const bf16> query_latent,
                    View<const bf16> head_weights, const Picks& picks);

}  // namespace cachalot
