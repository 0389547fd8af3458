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

}  // namespace cachalot::cuda
