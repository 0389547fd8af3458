// A barrier that tells whether something holds in any thread. For .cu files.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// sync_threads_of(number, threads), and whether `value` holds in any of them.
__device__ inline bool any_of_threads(int number, int threads, bool value) {
  uint32_t any;
  asm volatile(
      "{\n.reg .pred own, any;\nsetp.ne.u32 own, %3, 0;\nbar.red.or.pred any, %1, %2, own;\n"
      "selp.u32 %0, 1, 0, any;\n}\n"
      : "=r"(any)
      : "r"(number), "r"(threads), "r"(static_cast<uint32_t>(value))
      : "memory");
  return any != 0;
}

}  // namespace cachalot::cuda
