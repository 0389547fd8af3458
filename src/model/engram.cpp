#include "model/engram.h"

#include "model/queues.h"

namespace cachalot {

template <class Q>
View<int64_t> hash_ngrams(Q& queue, const Context& context) {
  const ModelConfig& config = context.config;
  const int64_t layers = static_cast<int64_t>(config.engram_layer_ids.size());
  const int64_t columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  const View<int64_t> table_rows =
      queue.arena().template allocate<int64_t>({context.tokens(), layers, columns});
  engram_hash(queue, EngramHashArgs{.rows = context.inputs.rows,
                                    .ids = context.inputs.ids,
                                    .image_index = context.inputs.image_index,
                                    .token_map = context.constants.token_map(),
                                    .pad_class = context.constants.pad_class,
                                    .multipliers = context.constants.multipliers(),
                                    .primes = context.constants.primes(),
                                    .offsets = context.constants.offsets(),
                                    .classes = context.paged(context.caches.token_classes()),
                                    .table_rows = table_rows});
  observe(context.observer, "engram_rows", -1, table_rows);
  return table_rows;
}

template <class Q>
void recall(Q& queue, const Context& context, int64_t layer, View<const int64_t> table_rows,
            View<bf16> stream) {
  const ModelConfig& config = context.config;
  const EngramWeights& weights = *context.weights.layers[static_cast<size_t>(layer)].engram;
  const int64_t n = context.tokens();
  ArenaScope scope(queue.arena());
  const View<bf16> values =
      queue.arena().template allocate<bf16>({n, table_rows.extent(2) * config.engram_head_dim});
  engram_gather(queue, EngramGatherArgs{.table_rows = table_rows,
                                        .layer = config.engram_index(layer),
                                        .codes = weights.codes,
                                        .scales = weights.scales,
                                        .values = values});
  const View<bf16> kv =
      queue.arena().template allocate<bf16>({n, (config.hc_mult + 1) * config.dim});
  linear(queue, LinearArgs{.x = values, .weight = weights.wkv, .y = kv});
  engram_mix(queue, EngramMixArgs{.kv = kv,
                                  .q_weight = weights.q_weight,
                                  .k_weight = weights.k_weight,
                                  .image_index = context.inputs.image_index,
                                  .norm_eps = config.norm_eps,
                                  .stream = stream});
}

#define CACHALOT_INSTANTIATE(Q)                           \
  template View<int64_t> hash_ngrams(Q&, const Context&); \
  template void recall(Q&, const Context&, int64_t, View<const int64_t>, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
