// The choice of experts for one token, from its sums, by one warp. For .cu files.
#pragma once

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// RouteArgs as kernels take them.
struct Routing {
  const bf16* x;
  const bf16* gate;
  const float* bias;
  const float* bias_image;  // or nullptr
  const int32_t* image_index;
  float route_scale;
  int64_t tokens;
  int dim, experts, choices;
  int32_t* ids;
  float* weights;

  explicit Routing(const RouteArgs& args)
      : x(args.x.data),
        gate(args.gate.data),
        bias(args.bias.data),
        bias_image(args.bias_image.data),
        image_index(args.image_index.data),
        route_scale(args.route_scale),
        tokens(args.x.extent(0)),
        dim(static_cast<int>(args.x.extent(1))),
        experts(static_cast<int>(args.gate.extent(0))),
        choices(static_cast<int>(args.ids.extent(1))),
        ids(args.ids.data),
        weights(args.weights.data) {}
};

// A lane keeps this many experts, or one of the larger number, in registers.
inline constexpr int kFewExpertsOfLane = 12, kMostExpertsOfLane = 32;

// sqrt(softplus(x)); softplus written so that it overflows for no x.
__device__ inline float affinity(float x) {
  return __fsqrt_rn(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}

// Floats as integers of the same order; none is 0 but that of a negative NaN.
__device__ inline uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Candidate {
  uint32_t order;
  float affinity;
  int id;
};
// `a`, unless `b` is really better: ids ascend.
__device__ inline Candidate better(const Candidate& a, const Candidate& b) {
  const bool second = b.order > a.order;
  return {second ? b.order : a.order, second ? b.affinity : a.affinity, second ? b.id : a.id};
}

// affinity_of(e) for all experts e, lane by lane; `bias` is the one this token's kind has.
template <int kExpertsOfLane, class AffinityOf>
__device__ void choose_experts(const Routing& routing, int64_t token, const float* bias,
                               AffinityOf affinity_of) {
  const int lane = threadIdx.x % 32;
  float affinities[kExpertsOfLane];
  uint32_t orders[kExpertsOfLane];
#pragma unroll
  for (int i = 0; i < kExpertsOfLane; ++i) {
    const int e = i * 32 + lane;
    affinities[i] = e < routing.experts ? affinity_of(e) : 0;
    orders[i] = e < routing.experts ? ordered(affinities[i] + bias[e]) : 0;
  }
  float sum = 0, my_affinity = 0;
  int my_id = 0;
  for (int choice = 0; choice < routing.choices; ++choice) {
    Candidate best[kExpertsOfLane];
#pragma unroll
    for (int i = 0; i < kExpertsOfLane; ++i) best[i] = {orders[i], affinities[i], i * 32 + lane};
      // A tree: what waits for one another is a third of what it were in a chain.
#pragma unroll
    for (int distance = 1; distance < kExpertsOfLane; distance *= 2)
#pragma unroll
      for (int i = 0; i + distance < kExpertsOfLane; i += 2 * distance)
        best[i] = better(best[i], best[i + distance]);
    const uint32_t best_of_all = __reduce_max_sync(~0u, best[0].order);
    // Of equals the lowest id.
    const auto chosen = static_cast<int>(__reduce_min_sync(
        ~0u, best[0].order == best_of_all ? static_cast<uint32_t>(best[0].id) : ~0u));
    const float chosen_affinity = __shfl_sync(~0u, best[0].affinity, chosen % 32);
    sum += chosen_affinity;
    if (lane == choice) my_id = chosen, my_affinity = chosen_affinity;
#pragma unroll
    for (int i = 0; i < kExpertsOfLane; ++i)
      if (i * 32 + lane == chosen) orders[i] = 0;
  }
  if (lane >= routing.choices) return;
  const float divisor = routing.choices > 1 ? sum + 1e-20f : 1.0f;
  routing.ids[token * routing.choices + lane] = my_id;
  routing.weights[token * routing.choices + lane] =
      __fdiv_rn(my_affinity, divisor) * routing.route_scale;
}

// route in one kernel, for few tokens and matrices that suit it; the products are those of
// multiply() (bf16_product.h), to the bit.
bool route_few_takes(const RouteArgs& args);
void route_few(Queue& queue, const RouteArgs& args);

}  // namespace cachalot::cuda
