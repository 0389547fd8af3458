#include "backend/cuda/launch.h"
#include "backend/cuda/quantize_fp8.cuh"
#include "backend/cuda/quantize_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;  // one load of 16 bytes; four neighbours share a group

__global__ void __launch_bounds__(kThreads) quantize(const uint4* x, QuantizedRows out) {
  // What follows is a matrix product that has weights to fetch first.
  let_next_start();
  wait_for_inputs();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // Whole groups are inside or outside, and a warp's threads meet in the shuffles.
  const bool inside = at * kPerThread < out.rows * out.columns;
  const EightCodes eight = quantize_eight(inside ? x[at] : uint4{});
  if (!inside) return;
  reinterpret_cast<uint2*>(out.codes)[at] = eight.codes;
  if (threadIdx.x % 4 == 0) {
    const int64_t row = at * kPerThread / out.columns;
    const auto group = static_cast<int>((at * kPerThread - row * out.columns) / 32);
    reinterpret_cast<uint8_t*>(out.scales + group / 4 * out.scale_stride + row)[group % 4] =
        static_cast<uint8_t>(eight.scale);
  }
}

}  // namespace

QuantizedRows QuantizedRows::allocate(Scratch& scratch, int64_t rows, int64_t columns) {
  QuantizedRows out{.rows = rows, .columns = columns};
  out.scale_stride = (rows + 127) / 128 * 128;
  out.codes = scratch.allocate<uint8_t>(rows * columns);
  out.scales = scratch.allocate<uint32_t>((columns + 127) / 128 * out.scale_stride);
  return out;
}

QuantizedRows quantize_rows(Queue& queue, Scratch& scratch, const bf16* x, int64_t rows,
                            int64_t columns) {
  CACHALOT_CHECK(columns % 32 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0, "{} columns at {}",
                 columns, static_cast<const void*>(x));
  const QuantizedRows out = QuantizedRows::allocate(scratch, rows, columns);
  const int64_t threads = rows * columns / kPerThread;
  launch(queue, "quantize_rows", quantize,
         {.blocks = dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
          .threads = kThreads},
         reinterpret_cast<const uint4*>(x), out);
  return out;
}

}  // namespace cachalot::cuda
