#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 8;

// products[token][expert], FP32. Blocks (tokens, experts / kWarps); a warp per product.
__global__ void route_products(const bf16* x, const bf16* gate, float* products, int64_t dim,
                               int experts) {
  wait_for_inputs();
  const int64_t token = blockIdx.x;
  const int expert = blockIdx.y * kWarps + threadIdx.x / 32;
  if (expert >= experts) return;
  float sum = 0;
  for (int64_t i = threadIdx.x % 32; i < dim; i += 32)
    sum += float_of(x[token * dim + i]) * float_of(gate[expert * dim + i]);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) products[token * experts + expert] = sum;
}

// sqrt(softplus(x)); softplus written so that it overflows for no x.
__device__ float affinity(float x) { return __fsqrt_rn(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

// Floats as integers of the same order.
__device__ uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Selection {
  const float* products;
  const float* bias;
  const float* bias_image;  // or nullptr
  const int32_t* image_index;
  float route_scale;
  int experts, k;
  int32_t* ids;
  float* weights;
};

// A block of one warp per token. Shared memory: an affinity and an order per expert.
__global__ void route_select(Selection select) {
  extern __shared__ float affinities[];
  auto* orders = reinterpret_cast<uint32_t*>(affinities + select.experts);
  wait_for_inputs();
  const int64_t token = blockIdx.x;
  const int lane = threadIdx.x;
  const bool image = select.bias_image != nullptr && select.image_index[token] >= 0;
  const float* bias = image ? select.bias_image : select.bias;
  for (int e = lane; e < select.experts; e += 32) {
    const float s = affinity(select.products[token * select.experts + e]);
    affinities[e] = s;
    orders[e] = ordered(s + bias[e]);
  }
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < select.k; ++i) {
    uint32_t best = 0;
    int best_id = select.experts - 1;
    for (int e = lane; e < select.experts; e += 32)
      if (orders[e] > best) best = orders[e], best_id = e;
    const uint32_t all_best = __reduce_max_sync(~0u, best);
    const int id = static_cast<int>(
        __reduce_min_sync(~0u, best == all_best ? static_cast<uint32_t>(best_id) : ~0u));
    if (lane == 0) {
      sum += affinities[id];
      select.ids[token * select.k + i] = id;
      orders[id] = 0;
    }
    __syncwarp();
  }
  if (lane != 0) return;
  const float divisor = select.k > 1 ? sum + 1e-20f : 1.0f;
  for (int i = 0; i < select.k; ++i) {
    const float s = affinities[select.ids[token * select.k + i]];
    select.weights[token * select.k + i] = __fdiv_rn(s, divisor) * select.route_scale;
  }
}

}  // namespace

void route(Queue& queue, const RouteArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), experts = args.gate.extent(0);
  if (tokens == 0) return;
  Scratch scratch(queue);
  auto* products = scratch.allocate<float>(tokens * experts);
  launch(queue, "route", route_products,
         {.blocks = dim3(tokens, (experts + kWarps - 1) / kWarps), .threads = 32 * kWarps},
         args.x.data, args.gate.data, products, dim, experts);
  const Selection select{.products = products,
                         .bias = args.bias.data,
                         .bias_image = args.bias_image.data,
                         .image_index = args.image_index.data,
                         .route_scale = args.route_scale,
                         .experts = static_cast<int>(experts),
                         .k = static_cast<int>(args.ids.extent(1)),
                         .ids = args.ids.data,
                         .weights = args.weights.data};
  launch(queue, "route", route_select,
         {.blocks = dim3(tokens), .threads = 32, .shared_bytes = experts * sizeof(float) * 2},
         select);
}

}  // namespace cachalot::cuda
