// Shared memory and its barriers by 32-bit address, which a ring's threads count up: what
// ptx/async_copy.h does with pointers. And the ways of results out of a warp's accumulators.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

// `bytes`, `to` and `from` are multiples of 16.
__device__ inline void copy_bulk_to(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                    CacheHint hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(static_cast<uint64_t>(hint))
      : "memory");
}
// Into both blocks of a cluster of two, at the same place, counted by the barrier at the same
// place.
__device__ inline void copy_bulk_to_both(uint32_t to, const void* from, uint32_t bytes,
                                         uint32_t barrier, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>(3)),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}
// Arrives, and holds the phase until copies have brought so many bytes.
__device__ inline void expect_at(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The same of threads for which `condition` holds, and at the barrier at the same place in another
// block of the cluster: this says that this block's shared memory has been read, no more
// (barrier_arrive_at() in async_copy.h). Without branches, which would end a pipeline of wgmmas.
__device__ inline void arrive_at_if(uint32_t barrier, bool condition) {
  asm volatile(
      "{\n.reg .pred holds;\nsetp.ne.b32 holds, %1, 0;\n"
      "@holds mbarrier.arrive.shared::cta.b64 _, [%0];\n}\n" ::"r"(barrier),
      "r"(static_cast<int>(condition))
      : "memory");
}
__device__ inline void arrive_at_block_if(uint32_t barrier, uint32_t block_of_cluster,
                                          bool condition) {
  asm volatile(
      "{\n.reg .pred holds;\n.reg .b32 remote;\nsetp.ne.b32 holds, %2, 0;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "@holds mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier),
      "r"(block_of_cluster), "r"(static_cast<int>(condition))
      : "memory");
}
__device__ inline void wait_at(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nbra again;\nfinished:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Shared memory by address.
__device__ inline uint32_t load_shared(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}
__device__ inline uint2 load_shared_2(uint32_t address) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(address));
  return words;
}

__device__ inline uint4 load_shared_4(uint32_t address) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address));
  return words;
}
__device__ inline void store_shared(uint32_t address, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

// 8 x 8 values of 16 bits as accumulators hold them - lane l has row l / 4, columns l % 4 * 2 + 0
// and 1 - stored transposed: lane i of the first eight (the second eight, ... for further matrices)
// says where column i goes, 16 bytes.
__device__ inline void store_transposed(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a),
               "r"(b)
               : "memory");
}

// Such a matrix transposed within the registers of a warp: lane l has row l / 4 of what were
// columns.
__device__ inline uint32_t transposed(uint32_t matrix) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
  return out;
}
// Four 8 x 8 matrices of 16-bit values from shared memory as B of mma.sync takes them: lane 8 m + r
// says where row r of matrix m lies, 16 bytes.
__device__ inline void load_matrices(uint32_t from, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(from)
               : "memory");
}

// The compiler takes the value for a new one: what it computed from the old it cannot keep.
template <class T>
__device__ __forceinline__ void renew(T& value) {
  asm volatile("" : "+r"(value));
}

}  // namespace cachalot::cuda
