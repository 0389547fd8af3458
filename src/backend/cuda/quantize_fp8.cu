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
  uint32_t scales = 0;  // of this thread's 32 columns, a byte a row
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const EightCodes eight = quantize_eight(packed[i]);
    scales |= eight.scale << (8 * i);
    if (column < columns && first + i < out.rows) {
      *reinterpret_cast<uint2*>(out.codes + (first + i) * columns + column) = eight.codes;
    }
  }
  // Four groups' bytes of four rows to each row's word.
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4 % 4;
  const uint32_t far = __shfl_xor_sync(~0u, scales, 8);
  const uint32_t half =
      group < 2 ? __byte_perm(scales, far, 0x5410) : __byte_perm(far, scales, 0x7632);
  const uint32_t near = __shfl_xor_sync(~0u, half, 4);
  const uint32_t word =
      group % 2 == 0 ? __byte_perm(half, near, 0x6240) : __byte_perm(near, half, 0x7351);
  if (lane % 4 == 0 && column / 128 * 128 < columns && first + group < out.rows) {
    out.scales[column / 128 * out.scale_stride + first + group] = word;
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
