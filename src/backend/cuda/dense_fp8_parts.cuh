// What both kernels of dense_fp8 do alike to an element: their equality to the bit rests on it. For
// .cu files.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/dense_fp8_kernels.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/tensor_map.h"

namespace cachalot::cuda {

// Blocks of 32 columns in a step of 128: one m64nNk32 product and one scale each.
inline constexpr int kStepBlocks = kStepColumns / 32;

// The scale of block 0 .. 3 of a step, from its four E8M0 codes. (255, an infinite value's, gives
// infinity here; the value's codes are NaN.)
__device__ inline float block_scale(uint32_t codes, int block) {
  return __uint_as_float((block == 3 ? codes >> 1 : codes << (23 - 8 * block)) & 0x7F800000u);
}

__device__ inline float at(const float4& four, int index) {
  return index == 0 ? four.x : index == 1 ? four.y : index == 2 ? four.z : four.w;
}

// sum + what one block adds.
__device__ inline float add_block(float sum, float products, float x_scale_tile_scale) {
  return __fmaf_rn(products, x_scale_tile_scale, sum);
}

// The sums of chunks 0, 1, ... are added one after the other to this: x + -0 is x for every x.
inline constexpr float kNothing = -0.0f;

__device__ inline float with_bias(float sum, const __nv_bfloat16* bias, int column) {
  return bias != nullptr ? sum + __bfloat162float(bias[column]) : sum;
}

// Results are written by the copy engine in boxes of a warpgroup's 64 rows of x and 64 of the
// weight.
inline constexpr int kBoxRows = 64, kBoxColumns = 64, kBoxBytes = kBoxRows * kBoxColumns * 2;

inline CUtensorMap results_map(const Fp8Output& out, int64_t rows, int64_t weight_rows) {
  return tensor_map(out.y, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                            .rows = rows,
                            .columns = weight_rows,
                            .row_bytes = weight_rows * 2,
                            .box_rows = kBoxRows,
                            .box_columns = kBoxColumns});
}

// A warpgroup rounds its results to BF16 and has them written: sums of 64 rows of x from `row` on
// and kColumns of the `out` of the weight from `column` on. They pass through `boxes` in shared
// memory, swizzled, so that a warp's stores meet every bank once. `meet` lets the warpgroup's
// threads meet.
template <int kColumns, class Meet>
__device__ inline void write_results(const CUtensorMap& y, uint8_t* boxes, int row, int column,
                                     int out, const __nv_bfloat16* bias, Meet meet,
                                     float (&sums)[kColumns / 2]) {
  int thread = static_cast<int>(threadIdx.x) % 128;
  // A kernel that walks tiles makes the addresses below anew for each, not once in registers.
  asm volatile("" : "+r"(thread));
  const int quad = thread % 4, box_row = thread / 32 * 16 + thread % 32 / 4;
  if (bias != nullptr) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int at = min(column + 8 * j + 2 * quad, out - 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[4 * j + i] = with_bias(sums[4 * j + i], bias, at + i % 2);
    }
  }
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<__nv_bfloat162*>(boxes + j / 8 * kBoxBytes + (box_row + 8 * half) * 128 +
                                         (j % 8 ^ box_row % 8) * 16 + quad * 4) =
          __floats2bfloat162_rn(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
    }
  }
  fence_shared_for_async();
  meet();
  if (thread != 0) return;
  for (int box = 0; box < kColumns / kBoxColumns; ++box) {
    store_box(y, column + box * kBoxColumns, row, boxes + box * kBoxBytes);
  }
  commit_stores();
}

// Rows of 128 bytes of codes, as a product reads them from shared memory.
inline CUtensorMap codes_map(const uint8_t* codes, int64_t rows, int64_t columns, int box_rows) {
  return tensor_map(codes, {.rows = rows,
                            .columns = columns,
                            .row_bytes = columns,
                            .box_rows = box_rows,
                            .box_columns = kStepColumns});
}
// The scales of a weight's tiles: those of `steps` steps, for `box_rows` * 32 rows.
inline CUtensorMap tile_scales_map(const DenseMatrix& weight, int box_rows, int steps = 1) {
  return tensor_map(weight.scales.data, {.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                         .rows = blocks_of(weight.rows),
                                         .columns = weight.columns / 32,
                                         .row_bytes = weight.columns / 32 * 4,
                                         .box_rows = box_rows,
                                         .box_columns = steps * kStepBlocks,
                                         .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
}

// The scales of `box_rows` rows of x, for `steps` steps.
inline CUtensorMap row_scales_map(const QuantizedRows& x, int box_rows, int steps = 1) {
  return tensor_map(x.scales, {.type = CU_TENSOR_MAP_DATA_TYPE_UINT32,
                               .rows = x.columns / kStepColumns,
                               .columns = x.scale_stride,
                               .row_bytes = x.scale_stride * 4,
                               .box_rows = steps,
                               .box_columns = box_rows,
                               .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
}

}  // namespace cachalot::cuda
