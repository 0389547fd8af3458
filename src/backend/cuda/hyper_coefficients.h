// From a token's mixes to its coefficients, for four copies: four consecutive lanes per token, lane
// j % 4 with source copy j. For .cu files.
#pragma once

#include "backend/cuda/hyper_collapse.h"

namespace cachalot::cuda {

// The lane's matrix row becomes the lane's matrix column.
__device__ inline void transpose_four(const float (&row)[4], float (&column)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int distance = 0; distance < 4; ++distance) {
    const int other = lane ^ distance;
    float sent = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (other == k) sent = row[k];
    const float got = __shfl_xor_sync(~0u, sent, distance);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (other == k) column[k] = got;
  }
}

// sum over i of line[i] * factor of lane i
__device__ inline float sum_of_four(const float (&line)[4], float factor) {
  float of_lane[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) of_lane[i] = __shfl_sync(~0u, factor, i, 4);
  return fmaf(line[0], of_lane[0], line[1] * of_lane[1]) +
         fmaf(line[2], of_lane[2], line[3] * of_lane[3]);
}

// Softmax over the row, then Sinkhorn, in place. What alternates is not the matrix but the factors
// of its rows and columns: m[j][k] = row[j] * a[j][k] * column[k] with a fixed a. Dividing row j by
// sum_k m[j][k] + eps makes its factor 1 / (sum_k a[j][k] * column[k] + eps / row[j]), so the
// inverse factors u (of rows) and v (of columns) are what is kept:
//   u[j] = sum_k a[j][k] / v[k] + eps * u[j], and the same with columns.
// That is one sum, one multiplication and one reciprocal per step in a chain of 2 * iterations
// steps, which at one token is most of the kernel's time. Once no factor changes, none ever will.
// All lanes of the warp call; a token that is not `live` holds up nobody.
__device__ inline void sinkhorn_four(float (&row)[4], int64_t iterations, float eps, bool live) {
  const float largest = fmaxf(fmaxf(row[0], row[1]), fmaxf(row[2], row[3]));
  float sum = 0;
#pragma unroll
  for (float& value : row) sum += value = expf(value - largest);
#pragma unroll
  for (float& value : row) value = value / sum + eps;
  float column[4];
  transpose_four(row, column);

  float u = 1, v = 1, row_factor = 1, column_factor = 1;
  for (int64_t i = 0; i < iterations; ++i) {
    const float u_before = u, v_before = v;
    if (i > 0) {
      u = fmaf(eps, u, sum_of_four(row, column_factor));
      row_factor = __frcp_rn(u);
    }
    v = fmaf(eps, v, sum_of_four(column, row_factor));
    column_factor = __frcp_rn(v);
    const bool changed = live && (u != u_before || v != v_before);
    if (!__any_sync(~0u, changed)) break;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) row[k] = row_factor * row[k] * __shfl_sync(~0u, column_factor, k, 4);
}

// Coefficients of `token` from its products with fn, mixes[24], and the mean square of its stream.
// base and scale are shared memory.
__device__ inline void write_four(const Collapse& args, int64_t token, const float* mixes,
                                  float mean_square, const float* base, const float* scale,
                                  bool live) {
  const int lane = threadIdx.x % 4;
  const float root = sqrtf(mean_square + args.norm_eps);
  const auto mix = [&](int i, int third) { return mixes[i] / root * scale[third] + base[i]; };
  const float pre = 1.0f / (1.0f + expf(-mix(lane, 0)));
  const float post = 1.0f / (1.0f + expf(-mix(4 + lane, 1)));
  float row[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) row[k] = mix(8 + lane * 4 + k, 2);
  sinkhorn_four(row, args.iterations, args.hc_eps, live);
  if (!live) return;
  args.pre_out[token * 4 + lane] = pre + args.hc_eps;
  args.post[token * 4 + lane] = 2 * post;
  reinterpret_cast<float4*>(args.comb + token * 16)[lane] = {row[0], row[1], row[2], row[3]};
}

}  // namespace cachalot::cuda
