// What the router's kernel tells that of a single token's experts before it ends: x, then the
// choice. Words are complements of their bits: 0 is one that is not there yet, for no two values
// of x are the NaNs whose complement that is, nor is a weight (awaited_sums.cuh).
//
// Whoever reads them early may rely on this: the router's blocks let the next kernel start only
// behind their own wait for what came before, and the words of the token before are zeros by then.
// So what came before the router is complete. For .cu files.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

struct ToldRoute {
  static constexpr int kMostChoices = 8, kMostDim = 8192;

  uint32_t ids[kMostChoices];
  uint32_t weights[kMostChoices];
  uint32_t x[kMostDim / 2];
};

__device__ inline void tell(uint32_t* at, uint32_t bits) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(~bits) : "memory");
}
__device__ inline void tell(uint32_t* at, uint2 bits) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(~bits.x), "r"(~bits.y)
               : "memory");
}
// 0 where a word is not there yet.
__device__ inline uint32_t load_awaited(const uint32_t* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
__device__ inline uint4 load_awaited_4(const uint32_t* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline bool all_there(const uint4& words) {
  return words.x != 0 && words.y != 0 && words.z != 0 && words.w != 0;
}

}  // namespace cachalot::cuda
