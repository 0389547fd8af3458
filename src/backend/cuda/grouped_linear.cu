#include "backend/cuda/plain_product.h"

namespace cachalot::cuda {
namespace {

__global__ void multiply(const __nv_bfloat16* x, PlainWeight weight, __nv_bfloat16* y,
                         int64_t tokens, int64_t groups, int64_t out) {
  wait_for_inputs();
  const int64_t row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= groups * out) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const float sum = plain_dot(x + (t * groups + row / out) * weight.columns, weight, row);
    if (threadIdx.x % 32 == 0) y[t * groups * out + row] = __float2bfloat16_rn(sum);
  }
}

}  // namespace

void grouped_linear(Queue& queue, const GroupedLinearArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), rows = args.weight.rows;
  launch(queue, "grouped_linear", multiply,
         {.blocks = dim3((rows + 3) / 4, tokens < 65535 ? tokens : 65535)},
         reinterpret_cast<const __nv_bfloat16*>(args.x.data), PlainWeight(args.weight),
         reinterpret_cast<__nv_bfloat16*>(args.y.data), tokens, args.x.extent(1), args.y.extent(2));
}

}  // namespace cachalot::cuda
