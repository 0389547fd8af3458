#include "ops/reference/math.h"

#include "tensor/block_quantizers.h"

namespace cachalot::reference {

float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += static_cast<double>(a[i]) * b[i];
  double total = 0;
  for (double sum : sums) total += sum;
  return static_cast<float>(total);
}

float mean_square(const float* x, int64_t count) {
  return dot(x, x, count) / static_cast<float>(count);
}

void rms_norm(float* x, int64_t count, const bf16* norm, float eps) {
  const float root = std::sqrt(mean_square(x, count) + eps);
  for (int64_t i = 0; i < count; ++i) x[i] = round_to_bf16(to_float(norm[i]) * (x[i] / root));
}

void rotate(float* x, int64_t width, View<const float> frequencies, int64_t position, Turn turn) {
  const int64_t pairs = frequencies.extent(0);
  float* rotated = x + width - 2 * pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * frequencies.data[i];
    const float cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
    const float forward_sine = static_cast<float>(std::sin(static_cast<double>(angle)));
    const float sine = turn == Turn::forward ? forward_sine : -forward_sine;
    const float a = rotated[2 * i], b = rotated[2 * i + 1];
    rotated[2 * i] = round_to_bf16(a * cosine - b * sine);
    rotated[2 * i + 1] = round_to_bf16(a * sine + b * cosine);
  }
}

void round_to_fp8(float* x, int64_t width) {
  std::vector<uint8_t> codes(width), scales(width / kFp8Group);
  quantize_fp8(x, width, codes.data(), scales.data());
  dequantize_fp8(codes.data(), scales.data(), width, x);
}

void round_to_int8(float* x, int64_t width) {
  for (float* group = x; group < x + width; group += kScaleBlock) {
    float largest = 0;
    for (int64_t i = 0; i < kScaleBlock; ++i) largest = std::fmax(largest, std::fabs(group[i]));
    const float scale = largest / 127;
    for (int64_t i = 0; i < kScaleBlock; ++i) {
      group[i] = scale > 0 ? std::nearbyint(group[i] / scale) * scale : 0;
    }
  }
}

void dequantize_row(const DenseMatrix& matrix, int64_t row, float* out) {
  if (!matrix.quantized()) {
    for (int64_t i = 0; i < matrix.columns; ++i) out[i] = to_float(matrix.values.row(row)[i]);
    return;
  }
  const uint8_t* codes = matrix.codes.row(row);
  const float* scales = matrix.scales.row(row / kScaleBlock);
  for (int64_t i = 0; i < matrix.columns; ++i)
    out[i] = e4m3_to_float(codes[i]) * scales[i / kScaleBlock];
}

void dequantize_row(const Fp4Matrix& matrix, int64_t row, float* out) {
  const uint8_t* codes = matrix.codes.row(row);
  const uint8_t* scales = matrix.scales.row(row);
  for (int64_t i = 0; i < matrix.columns; ++i)
    out[i] = e2m1_at(codes, i) * e8m0_to_float(scales[i / kScaleBlock]);
}

}  // namespace cachalot::reference
