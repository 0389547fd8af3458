#include "model/hyper_connections.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kCollapse{
    .slug = "collapse",
    .title = "Collapse",
    .sentence =
        "Sums the copies of the stream to the sublayer's normed input, with the mix the "
        "sublayer before computed, and computes from the same stream the mix for the sublayer "
        "after (sigmoid and a small constant), how strongly this one's output enters each copy "
        "(twice a sigmoid), and how the copies mix: a softmax over each row, then columns and "
        "rows normalized in turn (Sinkhorn), columns last. Every third of the product has a scale "
        "s of its own and a base b.",
    .formula =
        R"(x = \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big), \quad [a; p; c] = )"
        R"(\frac{W_{hc}\, \mathrm{flat}(h)}{\|h\|_{\mathrm{rms}}}, \quad )"
        R"(\alpha' = \sigma(s_1 a + b_a) + \epsilon, \quad \beta = 2\, \sigma(s_2 p + b_p), \quad )"
        R"(M = \mathrm{sinkhorn}\big(\mathrm{softmax}(s_3 c + b_c) + \epsilon\big))",
    .dimensions =
        "pre_in: hc_mult, pre_out: hc_mult, post: hc_mult, comb: hc_mult | hc_mult, stream: "
        "hc_mult "
        "| dim, x: dim, -: hc_sinkhorn_iters, -: hc_eps, -: norm_eps"};

constexpr Part kExpand{
    .slug = "expand",
    .title = "Expand",
    .sentence =
        "Mixes the copies of the stream among each other and adds the sublayer's output to "
        "each.",
    .formula = R"(h_k \leftarrow \beta_k\, y + \sum_j M_{jk}\, h_j)",
    .dimensions = "y: dim, post: hc_mult, comb: hc_mult | hc_mult, stream: hc_mult | dim"};

}  // namespace

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
  hyper_collapse(Within(queue, kCollapse).queue(),
                 HyperCollapseArgs{.stream = stream,
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
  hyper_expand(Within(queue, kExpand).queue(),
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
