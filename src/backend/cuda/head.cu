// head: the copy engine cannot pick rows, so those asked for are gathered first.
#include "backend/cuda/bf16_product.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

// One block a row.
__global__ void gather(const Value* x, const int32_t* rows, int64_t width, Value* gathered) {
  let_next_start();
  wait_for_inputs();
  const Value* from = x + rows[blockIdx.x] * width;
  Value* to = gathered + blockIdx.x * width;
  const bool aligned = width % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  if (!aligned) {
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
    return;
  }
  for (int64_t i = threadIdx.x; i < width / 8; i += blockDim.x) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
}

}  // namespace

void head(Queue& queue, const HeadArgs& args) {
  check_shapes(args);
  const int64_t outputs = args.rows.extent(0), dim = args.x.extent(1);
  Scratch scratch(queue);
  auto* gathered = scratch.allocate<Value>(outputs * dim);
  launch(queue, "head", gather, {.blocks = dim3(static_cast<unsigned>(outputs)), .threads = 256},
         reinterpret_cast<const Value*>(args.x.data), args.rows.data, dim, gathered);
  multiply(queue, scratch,
           {.operation = "head",
            .x = gathered,
            .weight = {.rows = args.weight.extent(0), .columns = dim, .values = args.weight},
            .tokens = outputs,
            .y_f32 = args.logits.data});
}

}  // namespace cachalot::cuda
