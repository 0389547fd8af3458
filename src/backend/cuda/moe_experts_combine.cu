// After the experts: y = RNE_BF16((sum of the experts' outputs in ascending id, FP32) + shared).
#include <climits>

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

// Blocks (parts of a row, tokens); 8 columns a thread. Every warp finds the order of the choices
// for itself: a lane per choice, so that no id is waited for before another is asked for. Some
// outputs may be kElsewhere.
template <bool kElsewhere>
__global__ void __launch_bounds__(kThreads) combine(ExpertsStep step) {
  wait_for_inputs();
  let_next_start();
  const int64_t token = blockIdx.y;
  const int choices = static_cast<int>(step.plan.choices), lane = threadIdx.x % 32;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  const bool inside = column < step.dim;
  const auto part = [&](const bf16* rows, int64_t row) {
    return inside ? *reinterpret_cast<const uint4*>(rows + row * step.dim + column) : uint4{};
  };
  int id = INT_MAX, row = 0;
  if (lane < choices) {
    id = step.ids[token * choices + lane];
    row = step.pair_rows[token * choices + lane];
  }
  const uint4 shared = part(step.outputs, step.plan.shared_row() + token);
  uint32_t elsewhere = 0;  // a bit per choice
  if constexpr (kElsewhere)
    elsewhere = __ballot_sync(~0u, lane < choices && is_elsewhere(step.experts[id]));
  int before = 0;
  for (int i = 0; i < choices; ++i) {
    const int other = __shfl_sync(~0u, id, i);
    before += other < id || (other == id && i < lane);
  }
  if (lane >= choices) before = kMostChoices;
  float sums[kPerThread] = {};
#pragma unroll 6
  for (int i = 0; i < choices; ++i) {
    const int from = __ffs(__ballot_sync(~0u, before == i)) - 1;
    const int of_here = __shfl_sync(~0u, row, from);
    add(sums, kElsewhere && (elsewhere >> from & 1)
                  ? part(step.outputs_elsewhere, token * choices + from)
                  : part(step.outputs, of_here));
  }
  if (!inside) return;
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
  launch(queue, "moe_experts", step.outputs_elsewhere != nullptr ? combine<true> : combine<false>,
         {.blocks = dim3((step.dim / kPerThread + kThreads - 1) / kThreads, step.plan.tokens),
          .threads = kThreads},
         step);
}

}  // namespace cachalot::cuda
