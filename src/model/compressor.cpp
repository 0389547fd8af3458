#include "model/compressor.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kCompressor{
    .slug = "compressor",
    .title = "Compressor",
    .sentence =
        "Turns every group of tokens into one latent, which the layers up to the next KV "
        "source attend to, and one index key, by which it is found.",
    .formula = R"(z_j = \mathrm{norm}\Big(\sum_{t \in j} \mathrm{softmax}(g)_t \odot u_t\Big))",
    .dimensions = "head_dim, dim, kv_source_layers, compress_ratios"};

constexpr Part kValues{
    .slug = "values",
    .title = "Compressor values",
    .sentence = "Projects each token to what it brings into its group's latent, in FP32.",
    .formula = R"(u_t = W_{kv}^C\, x_t)",
    .dimensions = "head_dim, dim"};

constexpr Part kGates{
    .slug = "gates",
    .title = "Compressor gates",
    .sentence = "Says per channel how much each token of a group counts, in FP32.",
    .formula = R"(g_t = W_g^C\, x_t)",
    .dimensions = "head_dim, dim"};

constexpr Part kLatents{
    .slug = "latents",
    .title = "Latents",
    .sentence =
        "Pools the tokens of every group that is complete, norms and rotates the result and "
        "stores it in FP4; an open group's tokens are kept until it is.",
    .formula = R"(z_j = \mathrm{norm}\Big(\sum_{t \in j} \frac{e^{g_t}}{\sum_{s \in j} e^{g_s}} )"
               R"(\odot u_t\Big), \quad \mathrm{cache}_j = \mathrm{fp4}(R_{jr}\, z_j))",
    .dimensions =
        "head_dim, head_dim / 2 + head_dim / 16, rope_head_dim / 2, compress_rope_theta, "
        "norm_eps"};

constexpr Part kIndexKeys{
    .slug = "index-keys",
    .title = "Index keys",
    .sentence = "Makes the key by which the indexer finds a latent, stored in FP4.",
    .formula = R"(k_j^I = \mathrm{fp4}\big(R_{jr}\, \mathrm{norm}(W_k\, z_j)\big))",
    .dimensions =
        "index_head_dim, head_dim, index_head_dim / 2 + index_head_dim / 32, "
        "rope_head_dim / 2, norm_eps"};

}  // namespace

template <class Q>
void compress(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const ModelConfig& config = context.config;
  const CompressorWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.compressor;
  const int64_t n = context.tokens(), head_dim = config.head_dim, ratio = config.ratio(layer);
  const View<const float> frequencies = context.constants.frequencies(ratio);
  const Within part(queue, kCompressor);
  ArenaScope scope(queue.arena());

  const View<float> kv = queue.arena().template allocate<float>({n, head_dim});
  linear(Within(queue, kValues).queue(), LinearArgs{.x = x, .weight = weights.wkv, .y_f32 = kv});
  View<float> gate;
  if (ratio > 1) {
    gate = queue.arena().template allocate<float>({n, head_dim});
    linear(Within(queue, kGates).queue(),
           LinearArgs{.x = x, .weight = weights.wgate, .y_f32 = gate});
  }
  const View<bf16> latent = queue.arena().template allocate<bf16>({n, head_dim});
  compress_kv(Within(queue, kLatents).queue(),
              CompressKvArgs{.rows = context.inputs.rows,
                             .ratio = ratio,
                             .kv = kv,
                             .gate = gate,
                             .open_rows = context.caches.open_rows(layer),
                             .norm = weights.norm,
                             .norm_eps = config.norm_eps,
                             .frequencies = frequencies,
                             .latent = latent,
                             .latents = context.paged(context.caches.latents(layer))});
  index_keys(Within(queue, kIndexKeys).queue(),
             IndexKeysArgs{.rows = context.inputs.rows,
                           .ratio = ratio,
                           .latent = latent,
                           .weight = weights.key_weight,
                           .norm = weights.key_norm,
                           .norm_eps = config.norm_eps,
                           .frequencies = frequencies,
                           .keys = context.paged(context.caches.index_keys(layer))});
}

#define CACHALOT_INSTANTIATE(Q) \
  template void compress(Q&, const Context&, int64_t, View<const bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
