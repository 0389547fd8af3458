#include "backend/cuda/launch.h"
#include "backend/cuda/tensor_map.h"

namespace cachalot::cuda {
namespace {

// The function belongs to the driver, which the program does not link.
using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                           cudaEnableDefault, &result),
          "looking for cuTensorMapEncodeTiled");
    CACHALOT_CHECK(found != nullptr && result == cudaDriverEntryPointSuccess,
                   "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap tensor_map(const void* data, const TensorMapShape& shape) {
  CUtensorMap map;
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(shape.columns),
                                 static_cast<cuuint64_t>(shape.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(shape.row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(shape.box_columns),
                             static_cast<cuuint32_t>(shape.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  // No more into L2 than a row of a box: what lies beside it in 256 bytes would come out of its
  // turn, which takes a product of few rows 5 % longer.
  const CUresult result =
      encoder()(&map, shape.type, 2, const_cast<void*>(data), extents, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, shape.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CACHALOT_CHECK(result == CUDA_SUCCESS,
                 "tensor map of {} x {} elements, {} bytes a row, box {} x {}: error {}",
                 shape.rows, shape.columns, shape.row_bytes, shape.box_rows, shape.box_columns,
                 static_cast<int>(result));
  return map;
}

}  // namespace cachalot::cuda
