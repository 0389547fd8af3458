// Asks the L2 for the line of 128 bytes that holds an address, and does not wait for it.
#pragma once

namespace cachalot::cuda {

__device__ inline void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace cachalot::cuda
