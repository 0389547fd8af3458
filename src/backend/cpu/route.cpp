#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// 12 gate rows of 10 KB stay in the second-level cache for a tile of rows.
constexpr int64_t kExpertBlock = 12;
constexpr int64_t kTokenTile = 32;

// sqrt(softplus(z)), softplus(z) = log(1 + e^z) without overflow and exact for large |z|.
float score_of(float z) {
  return std::sqrt(std::max(z, 0.0f) + std::log1p(std::exp(-std::fabs(z))));
}

// The k best by score + bias, best first; a later one must be larger to pass an earlier one.
void choose_experts(const float* scores, const float* bias, int64_t experts, int64_t k,
                    int32_t* ids) {
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float value = scores[e] + bias[e];
    int64_t at = count;
    while (at > 0 && value > scores[ids[at - 1]] + bias[ids[at - 1]]) --at;
    if (at == k) continue;
    count = std::min(count + 1, k);
    for (int64_t i = count - 1; i > at; --i) ids[i] = ids[i - 1];
    ids[at] = static_cast<int32_t>(e);
  }
}

void route_row(const RouteArgs& args, int64_t t, const float* scores) {
  const int64_t experts = args.gate.extent(0), k = args.ids.extent(1);
  const bool in_image = args.image_index.data[t] >= 0 && args.bias_image.present();
  int32_t* ids = args.ids.row(t);
  float* weights = args.weights.row(t);
  choose_experts(scores, in_image ? args.bias_image.data : args.bias.data, experts, k, ids);
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += weights[i] = scores[ids[i]];
  for (int64_t i = 0; i < k; ++i) {
    if (k > 1) weights[i] /= sum + 1e-20f;
    weights[i] *= args.route_scale;
  }
}

}  // namespace

void route(Queue& queue, const RouteArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), experts = args.gate.extent(0);
  const int64_t tiles = divide_up(tokens, kTokenTile), blocks = divide_up(experts, kExpertBlock);
  float* scores = reinterpret_cast<float*>(
      queue.scratch().reserve_shared(static_cast<size_t>(tokens * experts) * sizeof(float)));
  WorkShare product_tasks(tiles * blocks, queue.team().size());
  WorkShare row_tasks(tokens, queue.team().size());
  queue.run(tokens * experts * dim, [&](const TeamMember& member) {
    product_tasks.each([&](int64_t task) {
      const int64_t first = task / blocks * kTokenTile, expert = task % blocks * kExpertBlock;
      const int64_t count = std::min(kTokenTile, tokens - first);
      const int64_t outputs = std::min(kExpertBlock, experts - expert);
      float* out = scores + first * experts + expert;
      queue.rows().dots(args.x.row(first), dim, count, args.gate.row(expert), dim, outputs, dim,
                        out, experts);
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t e = 0; e < outputs; ++e) out[t * experts + e] = score_of(out[t * experts + e]);
      }
    });
    member.barrier();
    row_tasks.each([&](int64_t t) { route_row(args, t, scores + t * experts); });
  });
}

}  // namespace cachalot::cpu
