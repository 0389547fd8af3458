// Stores into the shared memory of another block of the cluster that its barrier counts, as it
// counts the bytes of copies: whoever waits for the barrier sees them, without a fence.
#pragma once

#include "backend/cuda/ptx/cluster.h"

namespace cachalot::cuda {

// Addresses of address_in_block(), of the same block.
__device__ inline void store_counted(uint32_t address, const float4& value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

}  // namespace cachalot::cuda
