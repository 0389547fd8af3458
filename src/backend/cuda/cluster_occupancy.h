// How many clusters of a kernel run at once. Fewer than the multiprocessors would make: a cluster's
// blocks lie in one part of the chip, and parts differ in size (an H200 has room for 7 clusters of
// 16 blocks that fill a multiprocessor each). For .cu files.
#pragma once

#include "backend/cuda/launch.h"

namespace cachalot::cuda {

// At least 1. Asks the driver: keep the answer.
template <class... Parameters>
int most_clusters(const char* operation, void (*kernel)(Parameters...), const LaunchShape& shape) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shape.shared_bytes)),
        operation);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), operation);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  const cudaLaunchConfig_t config{.gridDim = static_cast<unsigned>(shape.cluster),
                                  .blockDim = shape.threads,
                                  .dynamicSmemBytes = shape.shared_bytes,
                                  .attrs = &attribute,
                                  .numAttrs = 1};
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), operation);
  return count > 1 ? count : 1;
}

}  // namespace cachalot::cuda
