// Tells a barrier that copies of 16 bytes (row_copies.h) are done.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// One of the arrivals at the barrier of this address, when all copies this thread has started are
// done.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace cachalot::cuda
