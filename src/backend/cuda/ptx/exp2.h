// 2^x by the special function unit: relative error 2^-22, subnormal results are zero.
#pragma once

namespace cachalot::cuda {

__device__ inline float exp2_approximately(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

}  // namespace cachalot::cuda
