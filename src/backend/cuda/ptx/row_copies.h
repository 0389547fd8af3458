// What copies of scattered rows into shared memory take beside ptx/async_copy.h, and the way of
// results out of a warpgroup's accumulators.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

// 16 bytes of a row that is read on: the L2 fetches the whole line of 128 bytes.
__device__ inline void copy_16_of_line(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ inline void copy_16_to(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_4_to(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Barriers by their address in shared memory, which a ring's threads count up.
// One of the arrivals, when all copies this thread has started are done.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
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
__device__ inline void store_shared_2(uint32_t address, float2 values) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(values.x), "f"(values.y)
               : "memory");
}

// 8 x 8 values of 16 bits as accumulators hold them - lane l has row l / 4, columns l % 4 * 2 + 0
// and 1 - stored transposed: lane i of the first eight (the second eight, ... for further matrices)
// says where column i goes, 16 bytes.
__device__ inline void store_transposed(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a),
               "r"(b)
               : "memory");
}
__device__ inline void store_transposed(uint32_t to, uint32_t a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(to), "r"(a)
               : "memory");
}

// The compiler takes the value for a new one: what it computed from the old it cannot keep.
template <class T>
__device__ __forceinline__ void renew(T& value) {
  asm volatile("" : "+r"(value));
}

}  // namespace cachalot::cuda
