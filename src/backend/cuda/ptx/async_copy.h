// Copies between device and shared memory that run beside the threads, and the barriers that tell
// when they are done.
//
// A pipeline of stages: the producer waits until a stage is empty, announces the bytes
// (barrier_expect) and starts copies that count them down; consumers wait for the phase, read, and
// arrive at the stage's other barrier. The n-th use of a barrier is waited for with parity n % 2.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cachalot::cuda {

using Barrier = uint64_t;  // in shared memory

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// By one thread; then fence_barrier_init() by it and a __syncthreads() before others use it.
__device__ inline void barrier_init(Barrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// At the barrier that lies at the same place in another block of the cluster. It says that this
// block's shared memory has been read, no more: writes of this thread are not released to the other
// block, which would cost a fence each time.
__device__ inline void barrier_arrive_at(Barrier* barrier, uint32_t block_of_cluster) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(shared_address(barrier)),
      "r"(block_of_cluster)
      : "memory");
}
// Arrives, and holds the phase until copies have brought so many bytes.
__device__ inline void barrier_expect(Barrier* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ inline void barrier_wait(Barrier* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nbra again;\nfinished:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// What memory is kept in L2 for: passed with a copy.
enum class CacheHint : uint64_t {
  evict_first = 0x12F0000000000000,  // read once: streamed weights
  evict_normal = 0x1000000000000000,
  evict_last = 0x14F0000000000000  // read by every block: activations
};

// `bytes`, `to` and `from` are multiples of 16. One thread calls.
__device__ inline void copy_bulk(void* to, const void* from, uint32_t bytes, Barrier* barrier,
                                 CacheHint hint = CacheHint::evict_normal) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

// A box of a tensor (tensor_map.h): its first element is [row, column]; what lies outside the
// tensor is filled with zeros, and counted. `to` at a multiple of 128, of 1024 for swizzle_128.
__device__ inline void copy_box(void* to, const CUtensorMap& map, int32_t column, int32_t row,
                                Barrier* barrier, CacheHint hint = CacheHint::evict_normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}
__device__ inline void copy_box(void* to, const CUtensorMap& map, int32_t column, int32_t row,
                                int32_t layer, Barrier* barrier,
                                CacheHint hint = CacheHint::evict_normal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(layer), "r"(shared_address(barrier)),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}
// Into all blocks of the cluster whose bit is set in `blocks`, at the same place, counted by the
// barrier at the same place.
__device__ inline void copy_box_to_blocks(void* to, const CUtensorMap& map, int32_t column,
                                          int32_t row, Barrier* barrier, uint16_t blocks,
                                          CacheHint hint = CacheHint::evict_normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(blocks),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

// Back to device memory: copies of one thread, closed into a group and waited for by it.
__device__ inline void store_box(const CUtensorMap& map, int32_t column, int32_t row,
                                 const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(column), "r"(row), "r"(shared_address(from))
      : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most `pending` groups have yet to read their shared memory ...
template <int pending>
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// ... or to be visible in device memory.
template <int pending>
__device__ inline void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// In each thread that wrote shared memory by ordinary stores, before the barrier behind which
// matrix products or bulk copies read it.
__device__ inline void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// 16 bytes per thread; zeros if `inside` is false. Groups are the thread's own.
__device__ inline void copy_16(void* to, const void* from, bool inside = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// A barrier of some warps of the block; number 1 .. 15 (0 is __syncthreads), `threads` a multiple
// of 32.
__device__ inline void sync_threads_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// All threads of all blocks of the cluster: before the first use of another block's barriers or
// memory, and before leaving what others may still write to.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Registers per thread of a warpgroup, a multiple of 8; for kernels with __launch_bounds__(n, 1),
// each role one branch of a single if.
template <int count>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace cachalot::cuda
