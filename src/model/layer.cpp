#include "model/layer.h"

#include "model/attention.h"
#include "model/experts.h"
#include "model/hyper_connections.h"
#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kWindowAttention{
    .slug = "attention",
    .title = "Window attention",
    .sentence = "Attention to the last positions alone, one shared key-value head for all queries.",
    .formula =
        R"(h \leftarrow \mathrm{expand}\big(\mathrm{attention}(\mathrm{collapse}(h)),\, h\big))",
    .dimensions = "dim, n_heads, head_dim, -: window_size"};

constexpr Part kSparseLayerAttention{
    .slug = "attention",
    .title = "Compressed sparse attention",
    .sentence =
        "Attention to the last positions and to a few chosen ones of all compressed "
        "entries, one shared key-value head for all queries.",
    .formula =
        R"(h \leftarrow \mathrm{expand}\big(\mathrm{attention}(\mathrm{collapse}(h)),\, h\big))",
    .dimensions = "chosen: index_topk, dim, n_heads, head_dim, -: window_size, -: compress_ratios"};

constexpr Part kExpertsHalf{
    .slug = "experts",
    .title = "Experts",
    .sentence =
        "The layer's second half: every token visits a few routed experts and the shared "
        "one.",
    .formula =
        R"(h \leftarrow \mathrm{expand}\big(\mathrm{experts}(\mathrm{collapse}(h)),\, h\big))",
    .dimensions =
        "dim, -: n_routed_experts, -: n_activated_experts, -: dspark_n_routed_experts, "
        "-: dspark_n_activated_experts, -: moe_inter_dim"};

}  // namespace

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

  {
    const Within part(queue, config.ratio(layer) > 0 ? kSparseLayerAttention : kWindowAttention);
    const Collapsed for_attention =
        collapse(queue, context, stream.copies, stream.mix, weights.attention_mix,
                 weights.attention_norm, attention_mix);
    attention(queue, context, layer, for_attention.x, picks, output);
    observe(context.observer, "attn_out", layer, output);
    expand(queue, for_attention, output, stream.copies);
  }
  const Within part(queue, kExpertsHalf);
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
