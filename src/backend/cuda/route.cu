#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/mma_bf16.h"

namespace cachalot::cuda {
namespace {

// A row's inputs are shared out among 8 warps, in blocks of 32; their sums are added in order. That
// and the order within a warp are the same for every number of tokens: so is every product.
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

// What a lane holds of 8 rows and a block of 32 inputs: row lane / 4, inputs lane % 4 * 8 and the 7
// after it. Two k-steps take 4 each, in the same order from both operands.
__device__ uint4 load_rows(const bf16* matrix, int64_t row, int64_t rows, int64_t dim, int block) {
  const int64_t at = (row < rows ? row : rows - 1) * dim + block * 32 + threadIdx.x % 4 * 8;
  return __ldg(reinterpret_cast<const uint4*>(matrix + at));
}

// products[token][expert], FP32, exact products on tensor cores. A block makes 16 kExperts x
// 8 kTokens of them; how many changes no sum.
template <int kExperts, int kTokens>
__global__ void __launch_bounds__(kThreads)
    route_products(const bf16* x, const bf16* gate, float* products, int64_t tokens, int64_t dim,
                   int64_t experts) {
  constexpr int kColumns = 16 * kExperts;  // of the block's part of `products`
  extern __shared__ float parts[];         // [warp][token][expert]
  wait_for_inputs();
  let_next_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first_expert = static_cast<int64_t>(blockIdx.x) * kColumns;
  const int64_t first_token = static_cast<int64_t>(blockIdx.y) * 8 * kTokens;
  const int blocks = static_cast<int>(dim / 32), share = (blocks + kWarps - 1) / kWarps;
  float sums[kExperts][kTokens][4] = {};
  const int end = min(blocks, (warp + 1) * share);
#pragma unroll(kExperts == 1 ? 4 : 1)
  for (int block = warp * share; block < end; ++block) {
    uint4 a[kExperts][2], b[kTokens];
#pragma unroll
    for (int m = 0; m < kExperts; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        a[m][half] =
            load_rows(gate, first_expert + m * 16 + half * 8 + lane / 4, experts, dim, block);
#pragma unroll
    for (int n = 0; n < kTokens; ++n)
      b[n] = load_rows(x, first_token + n * 8 + lane / 4, tokens, dim, block);
#pragma unroll
    for (int m = 0; m < kExperts; ++m)
#pragma unroll
      for (int n = 0; n < kTokens; ++n) {
        mma_bf16(sums[m][n], {a[m][0].x, a[m][1].x, a[m][0].y, a[m][1].y}, {b[n].x, b[n].y});
        mma_bf16(sums[m][n], {a[m][0].z, a[m][1].z, a[m][0].w, a[m][1].w}, {b[n].z, b[n].w});
      }
  }
#pragma unroll
  for (int m = 0; m < kExperts; ++m)
#pragma unroll
    for (int n = 0; n < kTokens; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * 8 + lane % 4 * 2 + i % 2, expert = m * 16 + i / 2 * 8 + lane / 4;
        parts[(warp * 8 * kTokens + token) * kColumns + expert] = sums[m][n][i];
      }
  __syncthreads();
  for (int i = threadIdx.x; i < 8 * kTokens * kColumns; i += kThreads) {
    const int64_t token = first_token + i / kColumns, expert = first_expert + i % kColumns;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w * 8 * kTokens * kColumns + i];
    if (token < tokens && expert < experts) products[token * experts + expert] = sum;
  }
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

namespace {

template <int kExperts, int kTokens>
void launch_products(Queue& queue, const RouteArgs& args, float* products) {
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), experts = args.gate.extent(0);
  const int64_t columns = 16 * kExperts, rows = 8 * kTokens;
  launch(queue, "route", route_products<kExperts, kTokens>,
         {.blocks = dim3((experts + columns - 1) / columns, (tokens + rows - 1) / rows),
          .threads = kThreads,
          .shared_bytes = kWarps * rows * columns * sizeof(float)},
         args.x.data, args.gate.data, products, tokens, dim, experts);
}

}  // namespace

void route(Queue& queue, const RouteArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), experts = args.gate.extent(0);
  if (tokens == 0) return;
  CACHALOT_CHECK(dim % 32 == 0, "{} inputs: expected a multiple of 32", dim);
  Scratch scratch(queue);
  auto* products = scratch.allocate<float>(tokens * experts);
  // Few tokens: as many blocks as there are. Many: as much of both operands in a block as its
  // registers hold.
  if (tokens <= 8) {
    launch_products<1, 1>(queue, args, products);
  } else if (tokens <= 512) {
    launch_products<2, 4>(queue, args, products);
  } else {
    launch_products<4, 6>(queue, args, products);
  }
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
