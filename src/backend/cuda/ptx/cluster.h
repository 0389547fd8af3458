// Blocks of one cluster that write into each other's shared memory.
//
// Order: every thread of all blocks calls cluster_arrive() once its block's barriers are
// initialized, and cluster_wait() before it first touches another block. After that blocks tell
// each other that data is there by barrier_arrive_at() (async_copy.h) and
// barrier_wait_for_cluster().
#pragma once

#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same, but says nothing of what this block has written.
__device__ inline void cluster_arrive_without_writes() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// In each thread that stored into other blocks, before the barrier of its block behind which one
// thread arrives for all of them: the arrival alone does not wait for other threads' stores.
__device__ inline void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

// barrier_wait() for a barrier at which other blocks arrive: what they wrote before is seen after.
__device__ inline void barrier_wait_for_cluster(Barrier* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nbra again;\nfinished:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// The address of the same place in the shared memory of another block, for the stores below.
__device__ inline uint32_t address_in_block(const void* pointer, uint32_t block_of_cluster) {
  uint32_t out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(out)
      : "r"(shared_address(pointer)), "r"(block_of_cluster));
  return out;
}
// barrier_arrive_at() at such an address.
__device__ inline void barrier_arrive_at_address(uint32_t address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}
__device__ inline void store_in_block(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ inline void store_in_block(uint32_t address, uint4 value) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

}  // namespace cachalot::cuda
