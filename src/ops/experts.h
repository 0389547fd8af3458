// route, moe_experts (spec: model, 7).
#pragma once

#include <span>

#include "ops/access.h"
#include "ops/expert_input.h"
#include "tensor/matrix.h"

namespace cachalot {

// s = sqrt(softplus(x . gate^T)), FP32; ids = the k largest of s + bias (bias_image inside an image
// span), ties to the lower id, best first; weights = s[ids] / (sum + 1e-20) * route_scale (k = 1:
// no division). The bias steers the choice only.
struct RouteArgs {
  View<const bf16> x;               // [tokens, dim]
  View<const bf16> gate;            // [experts, dim]
  View<const float> bias;           // [experts]
  View<const float> bias_image;     // [experts], may be absent
  View<const int32_t> image_index;  // [tokens] -1 = text
  float route_scale = 1;
  View<int32_t> ids;    // [tokens, k], out
  View<float> weights;  // [tokens, k], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("gate", gate, Access::in);
    f("bias", bias, Access::in);
    f("bias_image", bias_image, Access::in);
    f("image_index", image_index, Access::in);
    f("ids", ids, Access::out);
    f("weights", weights, Access::out);
  }
};

// Per chosen expert: g = RNE_BF16(w1 x), u = RNE_BF16(w3 x); limit > 0: g = min(g, limit), u =
// clamp(u, -limit, limit); h = RNE_BF16(weight * silu(g) * u); y_e = RNE_BF16(w2 h). Inputs of w1,
// w3 and w2 are rounded as `input` says. The shared expert is the same with weight 1 and FP8
// matrices.
//   y = RNE_BF16((sum of y_e in ascending expert id, FP32) + y_shared)
struct MoeExpertsArgs {
  View<const bf16> x;                       // [tokens, dim]
  View<const int32_t> ids;                  // [tokens, k]
  View<const float> weights;                // [tokens, k]
  std::span<const ExpertMatrices> experts;  // by id
  SharedExpertMatrices shared;
  float limit = 0;
  ExpertInput input = ExpertInput::fp8;
  View<bf16> y;  // [tokens, dim], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("ids", ids, Access::in);
    f("weights", weights, Access::in);
    f("y", y, Access::out);
  }
};

}  // namespace cachalot
