#include "model/layer.h"

#include "model/attention.h"
#include "model/experts.h"
#include "model/hyper_connections.h"
#include "model/queues.h"

namespace cachalot {

// Delayed mixes: attention is collapsed by the mix of the previous block's experts half, the
// experts by the mix attention's half computed, and what the experts half computes goes on to the
// next block.
template <class Q>
void block(Q& queue, const Context& context, int64_t layer, const Picks& picks,
           const Stream& stream) {
  const LayerWeights& weights = context.weights.layers[static_cast<size_t>(layer)];
  const ModelConfig& config = context.config;
  Arena& arena = queue.arena();
  ArenaScope scope(arena);
  const View<bf16> output = arena.allocate<bf16>({context.tokens(), config.dim});
  const View<float> attention_mix = arena.allocate<float>({context.tokens(), config.hc_mult});

  const Collapsed for_attention =
      collapse(queue, context, stream.copies, stream.mix, weights.attention_mix,
               weights.attention_norm, attention_mix);
  attention(queue, context, layer, for_attention.x, picks, output);
  observe(context.observer, "attn_out", layer, output);
  expand(queue, for_attention, output, stream.copies);

  const Collapsed for_experts = collapse(queue, context, stream.copies, attention_mix,
                                         weights.experts_mix, weights.experts_norm, stream.mix);
  const int64_t top_k =
      layer < config.n_layers ? config.n_activated_experts : config.dspark_n_activated_experts;
  experts(queue, context, layer, weights.experts, top_k, for_experts.x, output);
  observe(context.observer, "ffn_out", layer, output);
  expand(queue, for_experts, output, stream.copies);
}

#define CACHALOT_INSTANTIATE(Q) \
  template void block(Q&, const Context&, int64_t, const Picks&, const Stream&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
