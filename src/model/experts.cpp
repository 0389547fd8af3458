#include "model/experts.h"

#include "model/queues.h"

namespace cachalot {

template <class Q>
void experts(Q& queue, const Context& context, int64_t layer, const ExpertsWeights& weights,
             int64_t top_k, View<const bf16> x, View<bf16> output) {
  const int64_t n = context.tokens();
  ArenaScope scope(queue.arena());
  const View<int32_t> ids = queue.arena().template allocate<int32_t>({n, top_k});
  const View<float> shares = queue.arena().template allocate<float>({n, top_k});
  route(queue, RouteArgs{.x = x,
                         .gate = weights.gate,
                         .bias = weights.bias,
                         .bias_image = weights.bias_image,
                         .image_index = context.inputs.image_index,
                         .route_scale = context.config.route_scale,
                         .ids = ids,
                         .weights = shares});
  observe(context.observer, "experts", layer, ids);
  moe_experts(queue, MoeExpertsArgs{.x = x,
                                    .ids = ids,
                                    .weights = shares,
                                    .experts = weights.experts,
                                    .shared = weights.shared,
                                    .limit = context.config.swiglu_limit,
                                    .input = context.constants.expert_input,
                                    .y = output});
}

#define CACHALOT_INSTANTIATE(Q)                                                      \
  template void experts(Q&, const Context&, int64_t, const ExpertsWeights&, int64_t, \
                        View<const bf16>, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
