#include "model/indexer.h"

#include <cmath>

#include "model/queues.h"

namespace cachalot {
namespace {

CandidateUse candidate_use(const ModelConfig& config, int64_t layer) {
  if (!config.has_candidates() || layer < config.candidate_source_layer) return CandidateUse::none;
  return layer == config.candidate_source_layer ? CandidateUse::build : CandidateUse::use;
}

}  // namespace

template <class Q>
void select_entries(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
                    View<const bf16> query_latent, const Picks& picks) {
  const ModelConfig& config = context.config;
  const IndexerWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.indexer;
  const int64_t n = context.tokens(), heads = config.index_n_heads, width = config.index_head_dim;
  const CandidateUse use = candidate_use(config, layer);
  ArenaScope scope(queue.arena());

  View<bf16> q = queue.arena().template allocate<bf16>({n, heads * width});
  linear(queue, LinearArgs{.x = query_latent, .weight = weights.wq_b, .y = q});
  const View<bf16> head_weights = queue.arena().template allocate<bf16>({n, heads});
  linear(queue, LinearArgs{.x = x, .weight = weights.weights_proj, .y = head_weights});
  q.shape = {n, heads, width};
  // width^-0.5 * heads^-0.5, in double as the release's Python computes it, then FP32.
  const double scale =
      std::pow(static_cast<double>(width), -0.5) * std::pow(static_cast<double>(heads), -0.5);
  // An indexer scores the keys of its own KV source, in prefill and in decode alike.
  const View<uint8_t> keys = context.caches.index_keys(config.kv_source_of(layer));
  index_select(queue,
               IndexSelectArgs{
                   .rows = context.inputs.rows,
                   .ratio = config.ratio(layer),
                   .q = q,
                   .weights = head_weights,
                   .weight_scale = static_cast<float>(scale),
                   .frequencies = context.constants.frequencies(config.ratio(layer)),
                   .keys = context.paged(View<const uint8_t>(keys)),
                   .candidate_use = use,
                   .candidate_block = use == CandidateUse::none ? 0 : config.candidate_block_size,
                   .candidates = use == CandidateUse::none ? View<int32_t>() : picks.candidates,
                   .chosen = picks.chosen});
}

#define CACHALOT_INSTANTIATE(Q)                                                                 \
  template void select_entries(Q&, const Context&, int64_t, View<const bf16>, View<const bf16>, \
                               const Picks&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
