// What several operations of the reference share: rows as floats, sums, the norm, the rotation.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tensor/matrix.h"
#include "tensor/view.h"

namespace cachalot::reference {

using Floats = std::vector<float>;

inline Floats to_floats(const bf16* x, int64_t count) {
  Floats out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(x[i]);
  return out;
}

inline void store_bf16(const float* x, int64_t count, bf16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(x[i]);
}

inline void round_all_to_bf16(Floats& x) {
  for (float& value : x) value = round_to_bf16(value);
}

// sum a[i] * b[i] in double, rounded once. Eight partial sums only because one is slow.
float dot(const float* a, const float* b, int64_t count);

// mean(x^2) in FP32
float mean_square(const float* x, int64_t count);

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float silu(float x) { return x * sigmoid(x); }

// x = RNE_BF16(norm * (x / sqrt(mean(x^2) + eps)))
void rms_norm(float* x, int64_t count, const bf16* norm, float eps);

enum class Turn { forward, back };

// Rotates the last 2 * frequencies channels of x at `position` and rounds them to BF16 (spec:
// model, 4.1).
void rotate(float* x, int64_t width, View<const float> frequencies, int64_t position, Turn turn);

// x := what FP8 in groups of 32 keeps of it (spec: model, 2.2)
void round_to_fp8(float* x, int64_t width);
// The same to int8 (ops/expert_input.h).
void round_to_int8(float* x, int64_t width);

// One row of a weight matrix, exactly.
void dequantize_row(const DenseMatrix& matrix, int64_t row, float* out);
void dequantize_row(const Fp4Matrix& matrix, int64_t row, float* out);

// x [tokens, columns] . weight^T -> [tokens, rows] in FP32; every weight row is expanded once.
template <class Matrix>
Floats product(const Floats& x, int64_t tokens, const Matrix& weight) {
  Floats out(tokens * weight.rows);
  Floats row(weight.columns);
  for (int64_t r = 0; r < weight.rows; ++r) {
    dequantize_row(weight, r, row.data());
    for (int64_t t = 0; t < tokens; ++t)
      out[t * weight.rows + r] = dot(&x[t * weight.columns], row.data(), weight.columns);
  }
  return out;
}

}  // namespace cachalot::reference
