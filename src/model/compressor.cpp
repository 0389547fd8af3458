#include "model/compressor.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

// A compressor pools where a group has several tokens; at ratio 1 every token is its own entry.
constexpr Part kPooling{
    .slug = "compressor",
    .title = "Compressor",
    .sentence =
        "Turns every group of tokens into one latent, which the layers up to the next KV "
        "source attend to, and one index key, by which it is found.",
    .formula = R"(z_j = \mathrm{norm}\Big(\sum_{t \in j} \mathrm{softmax}(g)_t \odot u_t\Big))",
    .dimensions = "head_dim, dim, -: kv_source_layers, -: compress_ratios"};

constexpr Part kProjecting{
    .slug = "compressor",
    .title = "Compressor at ratio 1",
    .sentence =
        "Turns every token into one latent, which the layers up to the next KV source attend to, "
        "and one index key, by which it is found. Nothing is pooled: there are no gates.",
    .formula = R"(z_j = \mathrm{norm}(W_{kv}^C\, x_j))",
    .dimensions = "head_dim, dim, -: kv_source_layers, -: compress_ratios"};

constexpr Part kPooledValues{
    .slug = "values",
    .title = "Compressor values",
    .sentence = "Projects each token to what it brings into its group's latent, in FP32.",
    .formula = R"(u_t = W_{kv}^C\, x_t)",
    .dimensions = "x: dim, y_f32: head_dim"};

constexpr Part kPlainValues{
    .slug = "values",
    .title = "Compressor values",
    .sentence =
        "Projects each token to its latent before the norm; weights are BF16, and the latent is "
        "rounded to it.",
    .formula = R"(u_j = W_{kv}^C\, x_j)",
    .dimensions = "x: dim, y_f32: head_dim"};

constexpr Part kGates{
    .slug = "gates",
    .title = "Compressor gates",
    .sentence = "Says per channel how much each token of a group counts, in FP32.",
    .formula = R"(g_t = W_g^C\, x_t)",
    .dimensions = "x: dim, y_f32: head_dim"};

constexpr Part kPooledLatents{
    .slug = "latents",
    .title = "Latents",
    .sentence =
        "Pools the tokens of every group that is complete, norms and rotates the result and "
        "stores it in FP4; an open group's tokens are kept until it is.",
    .formula = R"(z_j = \mathrm{norm}\Big(\sum_{t \in j} \frac{e^{g_t}}{\sum_{s \in j} e^{g_s}} )"
               R"(\odot u_t\Big), \quad \mathrm{cache}_j = \mathrm{fp4}(R_{jr}\, z_j))",
    .dimensions =
        "kv: head_dim, gate: head_dim, open_rows: 'rollback + ratio - 1' | 'kv and gate' | "
        "head_dim, latent: head_dim, "
        "latents: head_dim / 2 + head_dim / 16, frequencies: rope_head_dim / 2, "
        "-: compress_ratios, -: compress_rope_theta, -: rope_factor, -: beta_fast, -: beta_slow, "
        "-: original_seq_len, -: norm_eps"};

constexpr Part kPlainLatents{
    .slug = "latents",
    .title = "Latents",
    .sentence = "Norms and rotates every token's latent and stores it in FP4.",
    .formula = R"(z_j = \mathrm{norm}(u_j), \quad \mathrm{cache}_j = \mathrm{fp4}(R_j\, z_j))",
    .dimensions =
        "kv: head_dim, latent: head_dim, latents: head_dim / 2 + head_dim / 16, "
        "frequencies: rope_head_dim / 2, -: compress_ratios, -: compress_rope_theta, "
        "-: rope_factor, -: beta_fast, -: beta_slow, -: original_seq_len, -: norm_eps"};

constexpr Part kIndexKeys{
    .slug = "index-keys",
    .title = "Index keys",
    .sentence =
        "Makes the key by which the indexer finds an entry, from its latent before the rotation, "
        "and stores it in FP4.",
    .formula = R"(k_j^I = \mathrm{fp4}\big(R_{jr}\, \mathrm{norm}(W_k\, z_j)\big))",
    .dimensions =
        "latent: head_dim, keys: index_head_dim / 2 + index_head_dim / 32, "
        "frequencies: rope_head_dim / 2, -: index_head_dim, -: compress_rope_theta, -: norm_eps"};

}  // namespace

template <class Q>
void compress(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const ModelConfig& config = context.config;
  const CompressorWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.compressor;
  const int64_t n = context.tokens(), head_dim = config.head_dim, ratio = config.ratio(layer);
  const View<const float> frequencies = context.constants.frequencies(ratio);
  const bool pools = ratio > 1;
  const Within part(queue, pools ? kPooling : kProjecting);

  const View<float> kv = queue.arena().template allocate<float>({n, head_dim});
  linear(Within(queue, pools ? kPooledValues : kPlainValues).queue(),
         LinearArgs{.x = x, .weight = weights.wkv, .y_f32 = kv});
  View<float> gate;
  if (pools) {
    gate = queue.arena().template allocate<float>({n, head_dim});
    linear(Within(queue, kGates).queue(),
           LinearArgs{.x = x, .weight = weights.wgate, .y_f32 = gate});
  }
  const View<bf16> latent = queue.arena().template allocate<bf16>({n, head_dim});
  compress_kv(Within(queue, pools ? kPooledLatents : kPlainLatents).queue(),
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
