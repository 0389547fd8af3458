// The choice of experts for one token, from its sums, by one warp. For .cu files.
#pragma once

#include "backend/cuda/queue.h"
#include "backend/cuda/told_route.cuh"

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
  ToldRoute* told = nullptr;  // of a single token, to whoever does not wait for this kernel's end

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

// `sum`: of all chosen.
__device__ inline void write_choice(const Routing& routing, int64_t token, int place, int id,
                                    float affinity, float sum) {
  const float divisor = routing.choices > 1 ? sum + 1e-20f : 1.0f;
  routing.ids[token * routing.choices + place] = id;
  const float weight = __fdiv_rn(affinity, divisor) * routing.route_scale;
  routing.weights[token * routing.choices + place] = weight;
  if (routing.told != nullptr) {
    tell(routing.told->ids + place, static_cast<uint32_t>(id));
    tell(routing.told->weights + place, __float_as_uint(weight));
  }
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
  if (lane < routing.choices) write_choice(routing, token, lane, my_id, my_affinity, sum);
}

// The same by a block, an expert a thread. Of the warps' best experts the k-th is no better than
// the k-th of all: what is worse need not be looked at, and about one expert in 40 is left.
template <int kWarps>
struct BlockChoice {
  uint32_t best_of_warps[kWarps];
  int count;
  // What is left; orders are 0 behind the last.
  uint32_t orders[32];
  int ids[32];
  float affinities_left[32];
  float chosen[32];

  // `affinities`: room for one per thread. All threads call, with their experts' affinities.
  __device__ void choose(const Routing& routing, int64_t token, const float* bias, float affinity,
                         float* affinities) {
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int choices = routing.choices;
    const bool inside = thread < routing.experts;
    const uint32_t order = inside ? ordered(affinity + bias[thread]) : 0;
    __syncthreads();  // nobody reads what the token before left here
    affinities[thread] = affinity;
    const uint32_t best_of_warp = __reduce_max_sync(~0u, order);
    if (lane == 0) best_of_warps[warp] = best_of_warp;
    if (warp == 0) orders[lane] = 0;
    if (thread == 0) count = 0;
    __syncthreads();
    const uint32_t other = lane < kWarps ? best_of_warps[lane] : 0;
    int as_good = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) as_good += best_of_warps[w] >= other;
    const uint32_t least = __reduce_max_sync(~0u, as_good >= choices ? other : 0);
    const uint32_t left = __ballot_sync(~0u, inside && order >= least);
    int place = 0;
    if (lane == 0 && left != 0) place = atomicAdd(&count, __popc(left));
    place = __shfl_sync(~0u, place, 0) + __popc(left & ((1u << lane) - 1));
    if (left >> lane & 1 && place < 32) {
      orders[place] = order;
      ids[place] = thread;
      affinities_left[place] = affinity;
    }
    __syncthreads();
    if (warp != 0) return;
    if (count > 32) {
      choose_experts<kWarps>(routing, token, bias, [&](int e) { return affinities[e]; });
      return;
    }
    const uint32_t my_order = orders[lane];
    const int my_id = ids[lane];
    const float my_affinity = affinities_left[lane];
    int rank = 0;
#pragma unroll 1
    for (int first = 0; first < count; first += 8)
#pragma unroll
      for (int i = first; i < first + 8; ++i) {
        // Without branches: these would load ids one at a time, and only when an order is equal.
        const bool better = orders[i] > my_order, equal = orders[i] == my_order;
        rank += better | (equal & (ids[i] < my_id));
      }
    const bool is_chosen = lane < count && rank < choices;
    if (is_chosen) chosen[rank] = my_affinity;
    __syncwarp();
    float sum = 0;
#pragma unroll 6
    for (int i = 0; i < choices; ++i) sum += chosen[i];
    if (is_chosen) write_choice(routing, token, rank, my_id, my_affinity, sum);
  }
};

// route in one kernel, for few tokens and matrices that suit it; the products are those of
// multiply() (bf16_product.h), to the bit.
bool route_few_takes(const RouteArgs& args);
void route_few(Queue& queue, const RouteArgs& args);

}  // namespace cachalot::cuda
