// The only place that starts kernels. For .cu files.
//
// A kernel may start while the one before it still runs (programmatic dependent launch): every
// kernel calls wait_for_inputs() in all its threads before it reads or writes what another kernel
// wrote or reads, and may call let_next_start() once it will not be long. What never changes -
// weights - may be fetched before the wait.
//
// Waits are transitive: a kernel ends no sooner than its own wait, so behind the wait everything
// started before is complete, not only what the kernel in front wrote. A kernel that runs beside
// the one in front (bf16_product_beside.h, hyper_mixes.h) goes further and reads without a wait
// what was written before that one: it starts when all blocks of that one have called
// let_next_start(), and takes what was visible then as visible to itself. So the call must stand
// behind these blocks' waits, or behind those of the kernel before them, if that calls it behind
// its own (route.cu). One block of it waits at its end, so that whoever waits for it waits for all.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/queue.h"
#include "base/check.h"

namespace cachalot::cuda {

struct LaunchShape {
  dim3 blocks = 1;
  dim3 threads = 128;
  size_t shared_bytes = 0;  // dynamic
  int cluster = 1;          // blocks of a cluster along x
};

// Ends the program if a call of the runtime failed: with what was called and what it said.
void check(cudaError_t status, const char* what);

template <class... Parameters, class... Arguments>
void launch(Queue& queue, const char* operation, void (*kernel)(Parameters...),
            const LaunchShape& shape, Arguments&&... arguments) {
  if (shape.blocks.x == 0 || shape.blocks.y == 0 || shape.blocks.z == 0) return;
  // 48 KB is what a block gets without asking.
  if (shape.shared_bytes > size_t{48} << 10) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          operation);
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  if (shape.cluster > 1) {
    if (shape.cluster > 8) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            operation);
    }
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
    ++count;
  }
  const cudaLaunchConfig_t config{.gridDim = shape.blocks,
                                  .blockDim = shape.threads,
                                  .dynamicSmemBytes = shape.shared_bytes,
                                  .stream = queue.stream(),
                                  .attrs = attributes,
                                  .numAttrs = count};
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), operation);
}

__device__ inline void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace cachalot::cuda
