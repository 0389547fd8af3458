#include "backend/cuda/dense_bf16.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {

void linear(Queue& queue, const LinearArgs& args) {
  check_shapes(args);
  if (!args.weight.quantized()) return linear_bf16(queue, args);
  CACHALOT_CHECK(false, "not written yet");
}

}  // namespace cachalot::cuda
