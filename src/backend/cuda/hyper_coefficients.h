// From a token's products with fn to its coefficients, for four copies. For .cu files.
#pragma once

#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/ptx/reciprocal.h"

namespace cachalot::cuda {

// The first half, by a warp: lane i < 24 brings the product with row i of fn, lane 24 the stream's
// mean square. Writes pre_out and post, and to `matrix` (16 floats) the softmax of comb.
__device__ inline void begin_coefficients(const Collapse& args, int64_t token, float product,
                                          const float* base, const float* scale, float* matrix) {
  const int lane = threadIdx.x % 32, row = min(lane, 23);
  const float mean_square = __shfl_sync(~0u, product, 24);
  const float inverse_root = 1 / sqrtf(mean_square + args.norm_eps);
  const float mix = fmaf(product * inverse_root, scale[lane < 4 ? 0 : lane < 8 ? 1 : 2], base[row]);
  // Lanes 8 to 23 are the rows of comb, four lanes each.
  float largest = fmaxf(mix, __shfl_xor_sync(~0u, mix, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
  const float power = expf(lane < 8 ? -mix : mix - largest);
  float sum = power + __shfl_xor_sync(~0u, power, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  const float inverse = 1 / (lane < 8 ? 1 + power : sum);
  if (lane < 4) {
    args.pre_out[token * 4 + lane] = inverse + args.hc_eps;
  } else if (lane < 8) {
    args.post[token * 4 + lane - 4] = 2 * inverse;
  } else if (lane < 24) {
    matrix[lane - 8] = fmaf(power, inverse, args.hc_eps);
  }
}

// sum over i of a[i * stride] * b[i], plus c * d
__device__ inline float product_of_four(const float* a, int stride, const float (&b)[4], float c,
                                        float d) {
  const float first = fmaf(a[stride], b[1], a[0] * b[0]);
  const float second = fmaf(a[3 * stride], b[3], a[2 * stride] * b[2]);
  return fmaf(c, d, first) + second;
}

// The second half, by one thread: Sinkhorn. What alternates is not the matrix but the factors of
// its rows and columns: m[j][k] = row[j] * a[j][k] * column[k] with a fixed a. Dividing row j by
// sum_k m[j][k] + eps makes its factor 1 / (sum_k a[j][k] * column[k] + eps / row[j]), so the
// inverse factors u (of rows) and v (of columns) are kept:
//   u[j] = sum_k a[j][k] / v[k] + eps * u[j], and the same with columns.
// That is one sum and one reciprocal per step in a chain of 2 * iterations steps, which at one
// token is most of the kernel's time; within a thread no step waits for other lanes. A reciprocal
// off by a unit in the last place moves its factor by 2^-23, and the steps after it correct that.
// No step changes a factor by more, relatively, than the step before changed one: sums with
// positive weights and reciprocals do not stretch ratios. So once all change by less than 2^-21,
// what is left of 20 iterations moves comb by less than 2 * 20 * 2^-21 = 2^-15.7, where 2^-14 is
// allowed; as a rule they shrink geometrically and it is far less.
__device__ inline void finish_coefficients(const Collapse& args, int64_t token,
                                           const float* matrix) {
  constexpr float kStill = 0x1p-21f;
  float a[16], u[4] = {1, 1, 1, 1}, v[4] = {1, 1, 1, 1};
  float row[4] = {1, 1, 1, 1}, column[4] = {1, 1, 1, 1};
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i] = matrix[i];
#pragma unroll 1
  for (int64_t i = 0; i < args.iterations; ++i) {
    bool changed = i == 0;
    if (i > 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float next = product_of_four(a + 4 * j, 1, column, args.hc_eps, u[j]);
        changed |= fabsf(next - u[j]) > kStill * next;
        u[j] = next;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) row[j] = fast_reciprocal(u[j]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float next = product_of_four(a + k, 4, row, args.hc_eps, v[k]);
      changed |= fabsf(next - v[k]) > kStill * next;
      v[k] = next;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) column[k] = fast_reciprocal(v[k]);
    if (!changed) break;
  }
  float4* comb = reinterpret_cast<float4*>(args.comb + token * 16);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    comb[j] = {row[j] * a[4 * j] * column[0], row[j] * a[4 * j + 1] * column[1],
               row[j] * a[4 * j + 2] * column[2], row[j] * a[4 * j + 3] * column[3]};
}

}  // namespace cachalot::cuda
