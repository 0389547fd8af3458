#include "backend/cuda/dense_bf16.h"
#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {

void linear(Queue& queue, const LinearArgs& args) {
  check_shapes(args);
  if (!args.weight.quantized()) return linear_bf16(queue, args);
  Scratch scratch(queue);
  linear_fp8(queue, scratch, args.weight, args.x.data, args.x.extent(0),
             {.y = args.y.data,
              .y_f32 = args.y_f32.data,
              .bias = args.bias.data,
              .norm = args.norm.data,
              .norm_eps = args.norm_eps});
}

}  // namespace cachalot::cuda
