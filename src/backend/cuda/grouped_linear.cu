#include "backend/cuda/bf16_product.h"

namespace cachalot::cuda {

void grouped_linear(Queue& queue, const GroupedLinearArgs& args) {
  check_shapes(args);
  Scratch scratch(queue);
  multiply(queue, scratch,
           {.operation = "grouped_linear",
            .x = reinterpret_cast<const __nv_bfloat16*>(args.x.data),
            .weight = args.weight,
            .tokens = args.x.extent(0),
            .groups = args.x.extent(1),
            .y = reinterpret_cast<__nv_bfloat16*>(args.y.data)});
}

}  // namespace cachalot::cuda
