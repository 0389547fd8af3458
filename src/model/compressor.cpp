#include "model/compressor.h"

#include "model/queues.h"

namespace cachalot {

template <class Q>
void compress(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const ModelConfig& config = context.config;
  const CompressorWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.compressor;
  const int64_t n = context.tokens(), head_dim = config.head_dim, ratio = config.ratio(layer);
  const View<const float> frequencies = context.constants.frequencies(ratio);
  ArenaScope scope(queue.arena());

  const View<float> kv = queue.arena().template allocate<float>({n, head_dim});
  linear(queue, LinearArgs{.x = x, .weight = weights.wkv, .y_f32 = kv});
  View<float> gate;
  if (ratio > 1) {
    gate = queue.arena().template allocate<float>({n, head_dim});
    linear(queue, LinearArgs{.x = x, .weight = weights.wgate, .y_f32 = gate});
  }
  const View<bf16> latent = queue.arena().template allocate<bf16>({n, head_dim});
  compress_kv(queue, CompressKvArgs{.rows = context.inputs.rows,
                                    .ratio = ratio,
                                    .kv = kv,
                                    .gate = gate,
                                    .open_rows = context.caches.open_rows(layer),
                                    .norm = weights.norm,
                                    .norm_eps = config.norm_eps,
                                    .frequencies = frequencies,
                                    .latent = latent,
                                    .latents = context.paged(context.caches.latents(layer))});
  index_keys(queue, IndexKeysArgs{.rows = context.inputs.rows,
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
