#include "backend/cuda/plain_product.h"

namespace cachalot::cuda {
namespace {

__global__ void multiply(const __nv_bfloat16* x, const int32_t* rows, PlainWeight weight,
                         float* logits, int64_t vocab) {
  wait_for_inputs();
  const int64_t v = blockIdx.x * 4 + threadIdx.x / 32, i = blockIdx.y;
  if (v >= vocab) return;
  const float sum = plain_dot(x + rows[i] * weight.columns, weight, v);
  if (threadIdx.x % 32 == 0) logits[i * vocab + v] = sum;
}

}  // namespace

void head(Queue& queue, const HeadArgs& args) {
  check_shapes(args);
  const int64_t vocab = args.weight.extent(0);
  const DenseMatrix weight{.rows = vocab, .columns = args.weight.extent(1), .values = args.weight};
  launch(queue, "head", multiply, {.blocks = dim3((vocab + 3) / 4, args.rows.extent(0))},
         reinterpret_cast<const __nv_bfloat16*>(args.x.data), args.rows.data, PlainWeight(weight),
         args.logits.data, vocab);
}

}  // namespace cachalot::cuda
