// Keeps a value in its register.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// From here on the compiler knows nothing of where the value came from: it cannot work it out again
// at each use to save a register.
__device__ inline void computed_once(float& value) { asm volatile("" : "+f"(value)); }
__device__ inline void computed_once(int32_t& value) { asm volatile("" : "+r"(value)); }
__device__ inline void computed_once(uint32_t& value) { asm volatile("" : "+r"(value)); }

}  // namespace cachalot::cuda
