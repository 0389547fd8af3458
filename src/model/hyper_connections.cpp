#include "model/hyper_connections.h"

#include "model/queues.h"

namespace cachalot {

template <class Q>
Collapsed collapse(Q& queue, const Context& context, View<const bf16> stream, View<const float> mix,
                   const HyperConnectionWeights& weights, View<const bf16> norm,
                   View<float> next_mix) {
  const ModelConfig& config = context.config;
  const int64_t n = context.tokens(), copies = config.hc_mult;
  Arena& arena = queue.arena();
  const Collapsed result{.x = arena.allocate<bf16>({n, config.dim}),
                         .post = arena.allocate<float>({n, copies}),
                         .comb = arena.allocate<float>({n, copies, copies})};
  hyper_collapse(queue, HyperCollapseArgs{.stream = stream,
                                          .pre_in = mix,
                                          .fn = weights.fn,
                                          .base = weights.base,
                                          .scale = weights.scale,
                                          .norm = norm,
                                          .norm_eps = config.norm_eps,
                                          .hc_eps = config.hc_eps,
                                          .sinkhorn_iterations = config.hc_sinkhorn_iters,
                                          .x = result.x,
                                          .pre_out = next_mix,
                                          .post = result.post,
                                          .comb = result.comb});
  return result;
}

template <class Q>
void expand(Q& queue, const Collapsed& collapsed, View<const bf16> output, View<bf16> stream) {
  hyper_expand(queue,
               HyperExpandArgs{
                   .y = output, .post = collapsed.post, .comb = collapsed.comb, .stream = stream});
}

#define CACHALOT_INSTANTIATE(Q)                                                              \
  template Collapsed collapse(Q&, const Context&, View<const bf16>, View<const float>,       \
                              const HyperConnectionWeights&, View<const bf16>, View<float>); \
  template void expand(Q&, const Collapsed&, View<const bf16>, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
