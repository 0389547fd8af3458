// Keeps a value in its register.
#pragma once

namespace cachalot::cuda {

// From here on the compiler knows nothing of where the value came from: it cannot work it out again
// at each use to save a register.
__device__ inline void computed_once(float& value) { asm volatile("" : "+f"(value)); }

}  // namespace cachalot::cuda
