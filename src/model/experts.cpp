#include "model/experts.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kRouter{
    .slug = "router",
    .title = "Router",
    .sentence =
        "Scores the experts for every token and takes the best; a bias steers the choice, "
        "another one inside images, and never enters the weights.",
    .formula = R"(s = \sqrt{\mathrm{softplus}(W_g\, x)}, \quad S = \mathrm{top}_k(s + b), \quad )"
               R"(w_e = \lambda\, s_e \big/ \textstyle\sum_{i \in S} s_i)",
    .dimensions =
        "x: dim, ids: n_activated_experts, ids: dspark_n_activated_experts, "
        "weights: n_activated_experts, weights: dspark_n_activated_experts, -: n_routed_experts, "
        "-: dspark_n_routed_experts, -: route_scale"};

// The matrices inside one operation.
constexpr Part kExpertKinds[] = {
    {.slug = "routed",
     .title = "Routed experts",
     .sentence = "One gated unit in FP4; a token visits the few that the router chose, and their "
                 "outputs are added in the order of their ids. The gate is clamped from above, the "
                 "content on both sides.",
     .formula = R"(y_e = W_2\big(w_e\, \mathrm{silu}(\min(W_1 x,\, \ell)) \odot )"
                R"(\mathrm{clamp}(W_3 x,\, -\ell,\, \ell)\big))",
     .dimensions = "dim, -: moe_inter_dim, -: n_routed_experts, -: n_activated_experts, "
                   "-: dspark_n_routed_experts, -: dspark_n_activated_experts, -: swiglu_limit",
     .unit = "expert"},
    {.slug = "shared",
     .title = "Shared expert",
     .sentence = "The same gated unit in FP8, with the same clamps, which every token visits.",
     .formula = R"(y_s = W_2\big(\mathrm{silu}(\min(W_1 x,\, \ell)) \odot )"
                R"(\mathrm{clamp}(W_3 x,\, -\ell,\, \ell)\big))",
     .dimensions = "dim, -: moe_inter_dim, -: n_shared_experts, -: swiglu_limit"}};

constexpr Part kExperts{
    .slug = "mixture",
    .title = "Mixture of experts",
    .sentence =
        "The chosen experts and the shared one, each a gated unit with clamped activations, "
        "added up.",
    .formula = R"(y = \sum_{e \in S} y_e + y_s)",
    .dimensions =
        "x: dim, y: dim, ids: n_activated_experts, ids: dspark_n_activated_experts, "
        "weights: n_activated_experts, weights: dspark_n_activated_experts, -: moe_inter_dim, "
        "-: swiglu_limit",
    .members = kExpertKinds};

}  // namespace

template <class Q>
void experts(Q& queue, const Context& context, int64_t layer, const ExpertsWeights& weights,
             int64_t top_k, View<const bf16> x, View<bf16> output) {
  const int64_t n = context.tokens();
  ArenaScope scope(queue.arena());
  const View<int32_t> ids = queue.arena().template allocate<int32_t>({n, top_k});
  const View<float> shares = queue.arena().template allocate<float>({n, top_k});
  route(Within(queue, kRouter).queue(), RouteArgs{.x = x,
                                                  .gate = weights.gate,
                                                  .bias = weights.bias,
                                                  .bias_image = weights.bias_image,
                                                  .image_index = context.inputs.image_index,
                                                  .route_scale = context.config.route_scale,
                                                  .ids = ids,
                                                  .weights = shares});
  observe(context.observer, "experts", layer, ids);
  moe_experts(Within(queue, kExperts).queue(),
              MoeExpertsArgs{.x = x,
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
