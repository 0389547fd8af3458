// Tensor maps: what the copy engine must know of a matrix in device memory (copy_box() in
// ptx/async_copy.h). A kernel takes them by value: const __grid_constant__ CUtensorMap.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cachalot::cuda {

struct TensorMapShape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  int64_t rows = 0, columns = 0;
  int64_t row_bytes = 0;  // from one row to the next, a multiple of 16
  int box_rows = 0;       // at most 256
  int box_columns = 0;    // times the element's size: a multiple of 16, at most the swizzle's width
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

// `data` at a multiple of 16. Costs no call of the driver that waits; fit for captured graphs.
CUtensorMap tensor_map(const void* data, const TensorMapShape& shape);

}  // namespace cachalot::cuda
