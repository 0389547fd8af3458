#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {
namespace {

// sqrt(softplus(x)); softplus written so that it overflows for no x.
float affinity(float x) {
  return std::sqrt(std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
}

// RNE_BF16(x . weight^T) with x rounded.
template <class Matrix>
Floats quantized_linear(Floats x, int64_t tokens, const Matrix& weight, ExpertInput input) {
  if (input == ExpertInput::int8) {
    round_to_int8(x.data(), tokens * weight.columns);
  } else {
    round_to_fp8(x.data(), tokens * weight.columns);
  }
  Floats y = product(x, tokens, weight);
  round_all_to_bf16(y);
  return y;
}

// One gated expert over `tokens` rows; weights [tokens] multiply the hidden row.
template <class Expert>
Floats expert(const Expert& matrices, const Floats& x, const Floats& weights, float limit,
              ExpertInput input) {
  const int64_t tokens = static_cast<int64_t>(weights.size()), width = matrices.w1.rows;
  const Floats gate = quantized_linear(x, tokens, matrices.w1, input);
  const Floats up = quantized_linear(x, tokens, matrices.w3, input);
  Floats hidden(tokens * width);
  for (int64_t i = 0; i < tokens * width; ++i) {
    const float g = limit > 0 ? std::fmin(gate[i], limit) : gate[i];
    const float u = limit > 0 ? std::clamp(up[i], -limit, limit) : up[i];
    hidden[i] = round_to_bf16(weights[i / width] * (silu(g) * u));
  }
  return quantized_linear(hidden, tokens, matrices.w2, input);
}

// The rows that chose one expert, gathered.
struct Gathered {
  std::vector<int64_t> tokens;
  Floats x, weights;
};

Gathered gather(const MoeExpertsArgs& args, int32_t id) {
  const int64_t dim = args.x.extent(1), k = args.ids.extent(1);
  Gathered out;
  for (int64_t t = 0; t < args.x.extent(0); ++t)
    for (int64_t i = 0; i < k; ++i) {
      if (args.ids.row(t)[i] != id) continue;
      const Floats row = to_floats(args.x.row(t), dim);
      out.tokens.push_back(t);
      out.x.insert(out.x.end(), row.begin(), row.end());
      out.weights.push_back(args.weights.row(t)[i]);
    }
  return out;
}

}  // namespace

void route(Queue&, const RouteArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1);
  const int64_t experts = args.gate.extent(0), k = args.ids.extent(1);
  const DenseMatrix gate{.rows = experts, .columns = dim, .values = args.gate};
  const Floats products = product(to_floats(args.x.data, tokens * dim), tokens, gate);
  for (int64_t t = 0; t < tokens; ++t) {
    const bool image = args.image_index.data[t] >= 0 && args.bias_image.present();
    const float* bias = image ? args.bias_image.data : args.bias.data;
    Floats s(experts);
    std::vector<int32_t> order(experts);
    for (int64_t e = 0; e < experts; ++e) {
      s[e] = affinity(products[t * experts + e]);
      order[e] = static_cast<int32_t>(e);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return s[a] + bias[a] > s[b] + bias[b]; });
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += s[order[i]];
    for (int64_t i = 0; i < k; ++i) {
      args.ids.row(t)[i] = order[i];
      args.weights.row(t)[i] = s[order[i]] / (k > 1 ? sum + 1e-20f : 1.0f) * args.route_scale;
    }
  }
}

void moe_experts(Queue&, const MoeExpertsArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1);
  Floats y(tokens * dim);
  for (size_t id = 0; id < args.experts.size(); ++id) {
    const Gathered rows = gather(args, static_cast<int32_t>(id));
    if (rows.tokens.empty()) continue;
    const Floats out = expert(args.experts[id], rows.x, rows.weights, args.limit, args.input);
    for (size_t r = 0; r < rows.tokens.size(); ++r)
      for (int64_t i = 0; i < dim; ++i) y[rows.tokens[r] * dim + i] += out[r * dim + i];
  }
  const Floats shared = expert(args.shared, to_floats(args.x.data, tokens * dim),
                               Floats(tokens, 1.0f), args.limit, ExpertInput::fp8);
  for (int64_t i = 0; i < tokens * dim; ++i) args.y.data[i] = to_bf16(y[i] + shared[i]);
}

}  // namespace cachalot::reference
