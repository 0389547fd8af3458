#include "model/attention.h"

#include <cmath>

#include "model/compressor.h"
#include "model/indexer.h"
#include "model/prefill_shortcut.h"
#include "model/queues.h"

namespace cachalot {
namespace {

// Layers below the cut of the prefill shortcut see every token.
View<const int32_t> window_starts(const Context& context, int64_t layer) {
  const bool below = layer < shortcut_cut(context.config);
  return below ? View<const int32_t>() : context.inputs.window_starts;
}

// Extends the compressed caches, chooses entries or takes over an earlier layer's choice.
template <class Q>
void update_picks(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
                  View<const bf16> query_latent, const Picks& picks) {
  const ModelConfig& config = context.config;
  // Of an upper step the lower one has compressed every token.
  if (config.is_kv_source(layer) && context.shape.part != StepPart::upper) {
    compress(queue, context, layer, x);
  }
  if (config.is_index_source(layer)) {
    select_entries(queue, context, layer, x, query_latent, picks);
    observe(context.observer, "chosen", layer, picks.chosen);
  } else {
    observe(context.observer, "reused_chosen", config.index_source_of(layer), picks.chosen);
  }
}

}  // namespace

template <class Q>
View<uint8_t> window_rows_of(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
                             View<bf16> q) {
  const ModelConfig& config = context.config;
  const AttentionWeights& weights = context.weights.layers[static_cast<size_t>(layer)].attention;
  const int64_t n = context.tokens();
  const View<uint8_t> window_rows =
      queue.arena().template allocate<uint8_t>({n, window_row_bytes(config.head_dim)});
  ArenaScope scope(queue.arena());
  const View<bf16> kv = queue.arena().template allocate<bf16>({n, config.head_dim});
  linear(queue, LinearArgs{.x = x,
                           .weight = weights.wkv,
                           .norm = weights.kv_norm,
                           .norm_eps = config.norm_eps,
                           .y = kv});
  prepare_query(queue,
                PrepareQueryArgs{.rows = context.inputs.rows,
                                 .frequencies = context.constants.frequencies(config.ratio(layer)),
                                 .q = q,
                                 .kv = kv,
                                 .window_rows = window_rows});
  return window_rows;
}

template <class Q>
void attention(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
               const Picks& picks, View<bf16> output) {
  const ModelConfig& config = context.config;
  const AttentionWeights& weights = context.weights.layers[static_cast<size_t>(layer)].attention;
  const StepRows& rows = context.inputs.rows;
  const int64_t n = context.tokens(), heads = config.n_heads, head_dim = config.head_dim;
  const int64_t ratio = config.ratio(layer);
  const View<const float> frequencies = context.constants.frequencies(ratio);
  Arena& arena = queue.arena();
  ArenaScope scope(arena);

  const View<bf16> query_latent = arena.allocate<bf16>({n, config.q_lora_rank});
  linear(queue, LinearArgs{.x = x,
                           .weight = weights.wq_a,
                           .norm = weights.q_norm,
                           .norm_eps = config.norm_eps,
                           .y = query_latent});
  View<bf16> q = arena.allocate<bf16>({n, heads * head_dim});
  linear(queue, LinearArgs{.x = query_latent, .weight = weights.wq_b, .y = q});
  q.shape = {n, heads, head_dim};
  const View<uint8_t> window_rows = window_rows_of(queue, context, layer, x, q);

  PagedRows<const uint8_t> latents;
  if (ratio > 0) {
    update_picks(queue, context, layer, x, query_latent, picks);
    const View<uint8_t> own = context.caches.latents(config.kv_source_of(layer));
    latents = context.paged(View<const uint8_t>(own));
  }
  View<bf16> o = arena.allocate<bf16>({n, heads, head_dim});
  sparse_attention(queue, SparseAttentionArgs{.rows = rows,
                                              .q = q,
                                              .window_rows = window_rows,
                                              .ring = context.caches.window(layer),
                                              .window = config.window_size,
                                              .block = context.shape.draft_block,
                                              .window_starts = window_starts(context, layer),
                                              .chosen = ratio > 0 ? picks.chosen : View<int32_t>(),
                                              .latents = latents,
                                              .sink = weights.sink,
                                              .frequencies = frequencies,
                                              .scale = static_cast<float>(
                                                  std::pow(static_cast<double>(head_dim), -0.5)),
                                              .o = o});
  if (context.shape.draft_block == 0) {
    write_window(
        queue, WriteWindowArgs{
                   .rows = rows, .window_rows = window_rows, .ring = context.caches.window(layer)});
  }

  o.shape = {n, config.o_groups, heads * head_dim / config.o_groups};
  View<bf16> low = arena.allocate<bf16>({n, config.o_groups, config.o_lora_rank});
  grouped_linear(queue, GroupedLinearArgs{.x = o, .weight = weights.wo_a, .y = low});
  low.shape = {n, config.o_groups * config.o_lora_rank};
  linear(queue, LinearArgs{.x = low, .weight = weights.wo_b, .y = output});
}

#define CACHALOT_INSTANTIATE(Q) \
  template void attention(Q&, const Context&, int64_t, View<const bf16>, const Picks&, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
