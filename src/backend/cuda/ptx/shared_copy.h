// Data from shared memory, or registers, into the shared memory of another block of the cluster,
// counted by a barrier there as copies from device memory are (async_copy.h): the block that waits
// for the barrier sees the data, no fence is needed. Addresses are of address_in_block()
// (cluster.h), of the same block.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/cluster.h"

namespace cachalot::cuda {

// 4 bytes.
__device__ inline void store_in_block_counted(uint32_t to, float value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}

// `bytes` and both places are multiples of 16. One thread calls; what was written to `from` by
// ordinary stores is behind a fence_shared_for_async() of the writers and a barrier.
__device__ inline void copy_to_block(uint32_t to, const void* from, uint32_t bytes,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "r"(shared_address(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace cachalot::cuda
