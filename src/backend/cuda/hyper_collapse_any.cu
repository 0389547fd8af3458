#include <algorithm>

#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostMixes = (2 + kMostCopies) * kMostCopies;

// Row `line` of the m x m matrix (columns: stride m) over its sum. One lane each.
__device__ void normalize(float* first, int count, int stride, float eps) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += first[i * stride];
  for (int i = 0; i < count; ++i) first[i * stride] /= sum + eps;
}

// One warp; lane j has row j, then column j.
__device__ void sinkhorn(float* comb, int copies, int64_t iterations, float eps) {
  const int lane = threadIdx.x % 32;
  if (lane < copies) {
    float* row = comb + lane * copies;
    float largest = row[0], sum = 0;
    for (int k = 1; k < copies; ++k) largest = fmaxf(largest, row[k]);
    for (int k = 0; k < copies; ++k) sum += row[k] = expf(row[k] - largest);
    for (int k = 0; k < copies; ++k) row[k] = row[k] / sum + eps;
  }
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0 && lane < copies) normalize(comb + lane * copies, copies, 1, eps);
    __syncwarp();
    if (lane < copies) normalize(comb + lane, copies, copies, eps);
    __syncwarp();
  }
}

// The coefficients of token t from its mixes before the scale; the first warp. `comb` is shared.
__device__ void write_coefficients(const Collapse& args, int64_t t, const float* mixes, float root,
                                   float* comb) {
  const int m = args.copies, lane = threadIdx.x % 32;
  for (int i = lane; i < (2 + m) * m; i += 32) {
    const float mix = mixes[i] / root * args.scale[i < m ? 0 : i < 2 * m ? 1 : 2] + args.base[i];
    const float sigmoid = 1.0f / (1.0f + expf(-mix));
    if (i < m) {
      args.pre_out[t * m + i] = sigmoid + args.hc_eps;
    } else if (i < 2 * m) {
      args.post[t * m + i - m] = 2 * sigmoid;
    } else {
      comb[i - 2 * m] = mix;
    }
  }
  __syncwarp();
  sinkhorn(comb, m, args.iterations, args.hc_eps);
  for (int i = lane; i < m * m; i += 32) args.comb[t * m * m + i] = comb[i];
}

__global__ void __launch_bounds__(kThreads) collapse_any_kernel(const Collapse args) {
  extern __shared__ uint4 dynamic[];  // the token's stream, then its x
  __shared__ float of_warp[2 * 32], mixes[kMostMixes], comb[kMostCopies * kMostCopies];
  const int64_t t = blockIdx.x;
  const int m = args.copies, units = static_cast<int>(args.dim / kUnit);
  uint4* const x = dynamic + m * units;
  let_next_start();
  wait_for_inputs();

  float squares[2] = {};  // of the stream, of x
  for (int u = threadIdx.x; u < units; u += kThreads) {
    Unit sum{};
    for (int j = 0; j < m; ++j) {
      const uint4 words = load_unit(args.stream + (t * m + j) * args.dim, u);
      dynamic[j * units + u] = words;
      const Unit copy = widen(words);
      const float share = args.pre_in[t * m + j];
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        sum.value[i] = fmaf(share, copy.value[i], sum.value[i]);
        squares[0] = fmaf(copy.value[i], copy.value[i], squares[0]);
      }
    }
    const uint4 rounded = narrow(sum);
    x[u] = rounded;
    const Unit collapsed = widen(rounded);
#pragma unroll
    for (int i = 0; i < kUnit; ++i)
      squares[1] = fmaf(collapsed.value[i], collapsed.value[i], squares[1]);
  }
  block_sums(squares, of_warp);

  const float x_root = sqrtf(squares[1] / static_cast<float>(args.dim) + args.norm_eps);
  for (int u = threadIdx.x; u < units; u += kThreads) {
    uint4 words = x[u];
    if (args.norm != nullptr) {
      Unit value = widen(words);
      const Unit norm = widen(load_unit(args.norm, u));
#pragma unroll
      for (int i = 0; i < kUnit; ++i) value.value[i] = norm.value[i] * (value.value[i] / x_root);
      words = narrow(value);
    }
    store_unit(args.x + t * args.dim, u, words);
  }
  if (args.fn == nullptr) return;

  // A warp per mix.
  for (int i = threadIdx.x / 32; i < (2 + m) * m; i += kThreads / 32) {
    const float* fn = args.fn + i * m * args.dim;
    float sum = 0;
    for (int u = threadIdx.x % 32; u < m * units; u += 32) {
      const Unit value = widen(dynamic[u]);
#pragma unroll
      for (int e = 0; e < kUnit; ++e) sum = fmaf(value.value[e], fn[u * kUnit + e], sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) mixes[i] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float root = sqrtf(squares[0] / static_cast<float>(m * args.dim) + args.norm_eps);
  write_coefficients(args, t, mixes, root, comb);
}

}  // namespace

void collapse_any(Queue& queue, const HyperCollapseArgs& args) {
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  launch(queue, "hyper_collapse", collapse_any_kernel,
         {.blocks = static_cast<unsigned>(args.stream.extent(0)),
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>((copies + 1) * dim) * sizeof(bf16)},
         Collapse(args));
}

}  // namespace cachalot::cuda
