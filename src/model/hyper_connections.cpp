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
        "sublayer before computed, and computes from the same stream how this one's output "
        "is spread again and the mix for the sublayer after.",
    .formula = R"(x = \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big), \quad [\alpha'; \beta; M] = )"
               R"(\phi\big(W_{hc}\, \mathrm{flat}(h) / \|h\|_{\mathrm{rms}}\big))",
    .dimensions =
        "dim, hc_mult, (2 + hc_mult) * hc_mult, hc_mult * dim, hc_sinkhorn_iters, hc_eps"};

constexpr Part kExpand{
    .slug = "expand",
    .title = "Expand",
    .sentence =
        "Mixes the copies of the stream among each other and adds the sublayer's output to "
        "each.",
    .formula = R"(h_k \leftarrow \beta_k\, y + \sum_j M_{jk}\, h_j)",
    .dimensions = "hc_mult, dim"};

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
