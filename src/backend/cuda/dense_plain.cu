

#include <cuda_bf16.h>

#include "backend/cuda/dense_plain.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/quantize_fp8.cuh"
#include "backend/cuda/row_norm.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kTokens = 8;  // that a warp multiplies its row with before it reads it again

struct Product {
  QuantizedRows x;
  const uint8_t* codes;
  const float* scales;
  int out;
  __nv_bfloat16* y;
  float* y_f32;
  const __nv_bfloat16* bias;
};

// A lane has one column of every block of 32; lanes are added in a fixed tree at the end.
__global__ void __launch_bounds__(kWarps * 32) multiply(Product p) {
  wait_for_inputs();
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  const auto blocks = static_cast<int>(p.x.columns / 32);
  if (row >= p.out) return;
  const uint8_t* weight = p.codes + row * p.x.columns + lane;
  const float* tile_scales = p.scales + int64_t{row / 32} * blocks;
  float sums[kTokens] = {};
  for (int block = 0; block < blocks; ++block) {
    const float value = from_e4m3_pair(weight[block * 32]).x;
    const float tile_scale = tile_scales[block];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first + t >= p.x.rows) break;
      const float x = from_e4m3_pair(p.x.codes[(first + t) * p.x.columns + block * 32 + lane]).x;
      const uint32_t scales = p.x.scales[block / 4 * p.x.scale_stride + first + t];
      const float scale = scale_value(scales >> 8 * (block % 4) & 0xFF) * tile_scale;
      sums[t] = __fmaf_rn(value * x, scale, sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (first + t >= p.x.rows) break;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sums[t] += __shfl_xor_sync(~0u, sums[t], step);
    if (lane != 0) continue;
    const int64_t at = (first + t) * p.out + row;
    if (p.y_f32 != nullptr) {
      p.y_f32[at] = sums[t];
    } else {
      const float bias = p.bias != nullptr ? __bfloat162float(p.bias[row]) : 0.0f;
      p.y[at] = __float2bfloat16_rn(sums[t] + bias);
    }
  }
}

}  // namespace

void multiply_plain(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                    const Fp8Output& out) {
  const auto width = static_cast<int>(weight.rows);
  auto* y = reinterpret_cast<__nv_bfloat16*>(out.y);
  launch(queue, "linear", multiply,
         {.blocks = dim3((width + kWarps - 1) / kWarps,
                         static_cast<unsigned>((x.rows + kTokens - 1) / kTokens)),
          .threads = kWarps * 32},
         Product{.x = x,
                 .codes = weight.codes.data,
                 .scales = weight.scales.data,
                 .out = width,
                 .y = y,
                 .y_f32 = out.y_f32,
                 .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias)});
  if (out.norm != nullptr) {
    normalize_rows(queue, {out.y, out.norm, x.rows, weight.rows, out.norm_eps});
  }
}

}  // namespace cachalot::cuda
