#include "backend/cuda/launch.h"
#include "backend/cuda/row_norm.cuh"
#include "backend/cuda/row_norm.h"

namespace cachalot::cuda {
namespace {

__global__ void __launch_bounds__(128)
    normalize(__nv_bfloat16* y, const __nv_bfloat16* norm, int width, float eps) {
  let_next_start();
  wait_for_inputs();
  __shared__ float partial[4];
  normalize_row(y + int64_t{blockIdx.x} * width, norm, width, eps, partial, 1);
}

}  // namespace

void normalize_rows(Queue& queue, bf16* y, const bf16* norm, int64_t rows, int64_t width,
                    float eps) {
  launch(queue, "linear", normalize, {.blocks = dim3(static_cast<unsigned>(rows)), .threads = 128},
         reinterpret_cast<__nv_bfloat16*>(y), reinterpret_cast<const __nv_bfloat16*>(norm),
         static_cast<int>(width), eps);
}

}  // namespace cachalot::cuda
