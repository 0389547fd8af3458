// Rotary embedding on the device (spec: model, 4.1). For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cachalot::cuda {

// Cosine and sine of float(position) * frequency, the angle in FP32 as the contract says, both
// correct to FP32's last place for angles below 2^30. In double, and not by the library's sincos:
// a few dozen instructions without a branch or a stack, which matters to kernels that run them once
// (what an instruction costs there is its way from memory).
__device__ inline float2 turn_at(int32_t position, float frequency) {
  const double angle = __fmul_rn(static_cast<float>(position), frequency);
  // angle = quarters * pi / 2 + rest; pi / 2 in two parts, so that rest is off by 2^-75 of angle.
  const double quarters = rint(angle * 0x1.45f306dc9c883p-1);
  double rest = fma(-quarters, 0x1.921fb54442d18p+0, angle);
  rest = fma(-quarters, 0x1.1a62633145c07p-54, rest);
  // Taylor's sums: |rest| <= pi / 4, the first terms left out are below 2^-45.
  const double square = rest * rest;
  double sine = 1.0 / 6227020800;
  sine = fma(sine, square, -1.0 / 39916800);
  sine = fma(sine, square, 1.0 / 362880);
  sine = fma(sine, square, -1.0 / 5040);
  sine = fma(sine, square, 1.0 / 120);
  sine = fma(sine, square, -1.0 / 6);
  sine = fma(sine * square, rest, rest);
  double cosine = -1.0 / 87178291200;
  cosine = fma(cosine, square, 1.0 / 479001600);
  cosine = fma(cosine, square, -1.0 / 3628800);
  cosine = fma(cosine, square, 1.0 / 40320);
  cosine = fma(cosine, square, -1.0 / 720);
  cosine = fma(cosine, square, 1.0 / 24);
  cosine = fma(cosine, square, -0.5);
  cosine = fma(cosine, square, 1.0);
  const int quadrant = static_cast<int>(quarters);
  const auto out_cosine = static_cast<float>(quadrant & 1 ? sine : cosine);
  const auto out_sine = static_cast<float>(quadrant & 1 ? cosine : sine);
  return {(quadrant + 1) & 2 ? -out_cosine : out_cosine, quadrant & 2 ? -out_sine : out_sine};
}

// The pair (a, b) turned by (cosine, sine), unrounded. The inverse turn takes -sine.
__device__ inline float2 rotate_pair(float a, float b, float cosine, float sine) {
  return {__fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)),
          __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine))};
}

}  // namespace cachalot::cuda
