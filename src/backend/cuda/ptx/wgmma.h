// What all warpgroup matrix products share: their order in time, and the descriptors of operands in
// shared memory. The products themselves: wgmma_fp8.h, wgmma_bf16.h.
//
// A warpgroup is 4 consecutive warps, the first with an index divisible by 4; all 128 threads call.
// An accumulator of m64nN is float d[N / 2] per thread: thread (warp w of the group, lane l) has
//   d[4 * j + 2 * h + i] = D[16 * w + 8 * h + l / 4][8 * j + 2 * (l % 4) + i]   (h, i = 0, 1)
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// Before the first product, and whenever registers that products read or add to were written.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the group of the products started since the last call.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most `pending` of this warpgroup's latest groups still run.
template <int pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The compiler keeps what it does with these registers on its side of this line: put it behind
// wgmma_wait() for accumulators it would otherwise read too early.
template <int count>
__device__ inline void wgmma_hold(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// How a tile lies in shared memory. Rows (M of A, N of B) of 128, 64 or 32 bytes along K, eight to
// an atom whose 16-byte pieces are permuted as the copy engine's swizzle of the same name does;
// atoms at multiples of their size.
enum class SharedLayout : uint64_t { plain = 0, swizzle_128 = 1, swizzle_64 = 2, swizzle_32 = 3 };

// Operand with K contiguous. `eight_rows`: bytes from one group of eight rows to the next (1024 for
// whole rows of 128 bytes). Inside an atom the next K is reached by adding bytes to the address:
// advance_descriptor().
__device__ inline uint64_t shared_descriptor(const void* tile, SharedLayout layout,
                                             uint32_t eight_rows, uint32_t leading = 16) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return ((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(eight_rows >> 4) << 32 | static_cast<uint64_t>(layout) << 62;
}

__device__ inline uint64_t advance_descriptor(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace cachalot::cuda
