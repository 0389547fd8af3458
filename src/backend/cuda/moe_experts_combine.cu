// After the experts: y = RNE_BF16((sum of the experts' outputs in ascending id, FP32) + shared).
#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMostChoices = 32;
constexpr int kPerThread = 8;

__device__ void add(float (&sums)[kPerThread], uint4 eight) {
  const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[2 * i] += __uint_as_float(words[i] << 16);
    sums[2 * i + 1] += __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

// Blocks (parts of a row, tokens); 8 columns a thread.
__global__ void __launch_bounds__(kThreads) combine(ExpertsStep step) {
  __shared__ int rows[kMostChoices];
  wait_for_inputs();
  const int64_t token = blockIdx.y;
  const int choices = static_cast<int>(step.plan.choices);
  const int mine = threadIdx.x;
  if (mine < choices) {
    const int32_t* ids = step.ids + token * choices;
    int before = 0;
    for (int i = 0; i < choices; ++i)
      before += ids[i] < ids[mine] || (ids[i] == ids[mine] && i < mine);
    rows[before] = step.pair_rows[token * choices + mine];
  }
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (column >= step.dim) return;
  const auto outputs = [&](int64_t row) {
    return *reinterpret_cast<const uint4*>(step.outputs + row * step.dim + column);
  };
  const uint4 shared = outputs(step.plan.pairs() + token);
  float sums[kPerThread] = {};
#pragma unroll 6
  for (int i = 0; i < choices; ++i) add(sums, outputs(rows[i]));
  add(sums, shared);
  uint4 out;
  out.x = packed_bf16({sums[0], sums[1]});
  out.y = packed_bf16({sums[2], sums[3]});
  out.z = packed_bf16({sums[4], sums[5]});
  out.w = packed_bf16({sums[6], sums[7]});
  *reinterpret_cast<uint4*>(step.y + token * step.dim + column) = out;
}

}  // namespace

void experts_combine(Queue& queue, const ExpertsStep& step) {
  CACHALOT_CHECK(step.plan.choices <= kMostChoices, "{} choices", step.plan.choices);
  CACHALOT_CHECK(step.plan.tokens <= 65535, "{} tokens: a grid's second dimension ends there",
                 step.plan.tokens);
  launch(queue, "moe_experts", combine,
         {.blocks = dim3((step.dim / kPerThread + kThreads - 1) / kThreads, step.plan.tokens),
          .threads = kThreads},
         step);
}

}  // namespace cachalot::cuda
