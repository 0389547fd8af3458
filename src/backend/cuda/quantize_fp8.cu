#include "backend/cuda/launch.h"
#include "backend/cuda/quantize_fp8.cuh"
#include "backend/cuda/quantize_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPerThread = 8;  // one load of 16 bytes; four neighbours share a group
constexpr int kColumns = kThreads * kPerThread;
constexpr int kRows = 4;  // of a block: that many loads are under way at a time

__global__ void __launch_bounds__(kThreads) quantize(const uint4* x, QuantizedRows out) {
  // What follows is a matrix product that has weights to fetch first.
  let_next_start();
  wait_for_inputs();
  const int64_t first = int64_t{blockIdx.x} * kRows;
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kPerThread;
  const auto columns = static_cast<int>(out.columns);
  uint4 packed[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool inside = column < columns && first + i < out.rows;
    packed[i] = inside ? x[((first + i) * columns + column) / kPerThread] : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i;
    const EightCodes eight = quantize_eight(packed[i]);
    if (column >= columns || row >= out.rows) continue;
    *reinterpret_cast<uint2*>(out.codes + row * columns + column) = eight.codes;
    if (column % 32 == 0) {
      reinterpret_cast<uint8_t*>(out.scales + column / 128 * out.scale_stride +
                                 row)[column % 128 / 32] = static_cast<uint8_t>(eight.scale);
    }
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
  launch(queue, "quantize_rows", quantize,
         {.blocks = dim3(static_cast<unsigned>((rows + kRows - 1) / kRows),
                         static_cast<unsigned>((columns + kColumns - 1) / kColumns)),
          .threads = kThreads},
         reinterpret_cast<const uint4*>(x), out);
  return out;
}

}  // namespace cachalot::cuda
