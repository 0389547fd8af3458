#pragma once

namespace cachalot::cuda {

// 1 / value, off by one unit in the last place at most; for normal numbers whose inverse is one.
__device__ inline float fast_reciprocal(float value) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
  return out;
}

}  // namespace cachalot::cuda
