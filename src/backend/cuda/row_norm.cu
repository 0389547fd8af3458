#include "backend/cuda/launch.h"
#include "backend/cuda/row_norm.cuh"
#include "backend/cuda/row_norm.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps * 32)
    normalize(__nv_bfloat16* y, const __nv_bfloat16* norm, int64_t rows, int width, float eps) {
  let_next_start();
  wait_for_inputs();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row < rows) normalize_row(y + row * width, norm, width, eps);
}

}  // namespace

void normalize_rows(Queue& queue, bf16* y, const bf16* norm, int64_t rows, int64_t width,
                    float eps) {
  launch(
      queue, "linear", normalize,
      {.blocks = dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), .threads = kWarps * 32},
      reinterpret_cast<__nv_bfloat16*>(y), reinterpret_cast<const __nv_bfloat16*>(norm), rows,
      static_cast<int>(width), eps);
}

}  // namespace cachalot::cuda
