// The products are those of any matrix of BF16 (bf16_product.h), in whose order of additions a
// token's do not depend on the others; then a warp a token chooses. A few tokens take one kernel
// that adds in the same order (route_few.cu).
#include <optional>

#include "backend/cuda/bf16_product.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/route_choice.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4;

// Warps take tokens.
template <int kExpertsOfLane>
__global__ void __launch_bounds__(32 * kWarps)
    choose_for_all(const Routing routing, const float* products) {
  let_next_start();
  wait_for_inputs();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= routing.tokens) return;
  const bool image = routing.bias_image != nullptr && routing.image_index[token] >= 0;
  choose_experts<kExpertsOfLane>(
      routing, token, image ? routing.bias_image : routing.bias,
      [&](int e) { return affinity(products[token * routing.experts + e]); });
}

}  // namespace

void route(Queue& queue, const RouteArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), experts = args.gate.extent(0);
  if (tokens == 0) return;
  CACHALOT_CHECK(experts <= 32 * kMostExpertsOfLane, "{} experts", experts);
  CACHALOT_CHECK(args.ids.extent(1) <= 32, "{} choices", args.ids.extent(1));
  if (route_few_takes(args)) return route_few(queue, args);
  std::optional<Mixes> mixes;
  if (tokens > kMostMixTokens)
    mixes = queue.held().take_mixes(tokens, {args.x, args.ids, args.weights});
  Scratch scratch(queue);
  auto* products = scratch.allocate<float>(tokens * experts);
  multiply(queue, scratch,
           {.operation = "route",
            .x = reinterpret_cast<const __nv_bfloat16*>(args.x.data),
            .weight = {.rows = experts, .columns = dim, .values = args.gate},
            .tokens = tokens,
            .y_f32 = products});
  const auto kernel = experts <= 32 * kFewExpertsOfLane ? choose_for_all<kFewExpertsOfLane>
                                                        : choose_for_all<kMostExpertsOfLane>;
  launch(queue, "route", kernel,
         {.blocks = dim3((tokens + kWarps - 1) / kWarps), .threads = 32 * kWarps}, Routing(args),
         products);
  // Behind the choice, which need not wait for them. They start once its blocks have, and those
  // once all blocks of the product have waited: every product of more than kMostMixTokens tokens
  // that writes no window lets them start behind its wait.
  if (mixes) start_mixes_beside(queue, *mixes);
}

}  // namespace cachalot::cuda
