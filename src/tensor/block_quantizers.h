// The block quantizers one row at a time: plain loops over number_formats.h (spec: model, 2.2 and
// 2.3). They are the definitions that faster kernels are compared with.
//
//   fp8     groups of 32, E4M3 codes, E8M0 scale       linear inputs, window rows
//   latent  groups of 16, E2M1 codes, E4M3 scale       compressed latents
//   index   groups of 32, E2M1 codes, E8M0 scale       index queries and keys
//
// `width` must be a multiple of the group. Packed FP4 holds the even channel in the low nibble.
// Dequantized values are exact in BF16, so nothing is rounded on the way back.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/number_formats.h"

namespace cachalot {

inline constexpr int64_t kFp8Group = 32;
inline constexpr int64_t kLatentGroup = 16;
inline constexpr int64_t kIndexGroup = 32;

inline float largest_magnitude(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

// codes [width], scales [width / 32] E8M0
inline void quantize_fp8(const float* x, int64_t width, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < width / kFp8Group; ++group) {
    const float* values = x + group * kFp8Group;
    scales[group] = fp8_scale_code(largest_magnitude(values, kFp8Group));
    const float scale = e8m0_to_float(scales[group]);
    for (int64_t i = 0; i < kFp8Group; ++i)
      codes[group * kFp8Group + i] = float_to_e4m3(values[i] / scale);
  }
}

inline void dequantize_fp8(const uint8_t* codes, const uint8_t* scales, int64_t width, float* x) {
  for (int64_t i = 0; i < width; ++i)
    x[i] = e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kFp8Group]);
}

// The packed E2M1 codes of one group; v = clamp(x / scale) by a true division.
inline void quantize_e2m1_group(const float* x, int64_t count, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < count; i += 2) {
    const uint8_t low = float_to_e2m1(x[i] / scale);
    const uint8_t high = float_to_e2m1(x[i + 1] / scale);
    codes[i / 2] = static_cast<uint8_t>(low | (high << 4));
  }
}

inline float e2m1_at(const uint8_t* codes, int64_t index) {
  return e2m1_to_float((codes[index / 2] >> (index % 2 ? 4 : 0)) & 0xF);
}

// One window row: codes, then scales (tensor/cache_rows.h).
inline void quantize_window_row(const float* x, int64_t head_dim, uint8_t* row) {
  quantize_fp8(x, head_dim, row, row + head_dim);
}

inline void dequantize_window_row(const uint8_t* row, int64_t head_dim, float* x) {
  dequantize_fp8(row, row + head_dim, head_dim, x);
}

// One latent row: packed codes, then E4M3 scales.
inline void quantize_latent_row(const float* x, int64_t head_dim, uint8_t* row) {
  uint8_t* scales = row + head_dim / 2;
  for (int64_t group = 0; group < head_dim / kLatentGroup; ++group) {
    const float* values = x + group * kLatentGroup;
    scales[group] = latent_scale_code(largest_magnitude(values, kLatentGroup));
    quantize_e2m1_group(values, kLatentGroup, e4m3_to_float(scales[group]),
                        row + group * kLatentGroup / 2);
  }
}

inline void dequantize_latent_row(const uint8_t* row, int64_t head_dim, float* x) {
  const uint8_t* scales = row + head_dim / 2;
  for (int64_t i = 0; i < head_dim; ++i)
    x[i] = e2m1_at(row, i) * e4m3_to_float(scales[i / kLatentGroup]);
}

// One index key row (an index query quantizes the same way): packed codes, then E8M0 scales.
inline void quantize_index_row(const float* x, int64_t width, uint8_t* row) {
  uint8_t* scales = row + width / 2;
  for (int64_t group = 0; group < width / kIndexGroup; ++group) {
    const float* values = x + group * kIndexGroup;
    scales[group] = fp4_scale_code(largest_magnitude(values, kIndexGroup));
    quantize_e2m1_group(values, kIndexGroup, e8m0_to_float(scales[group]),
                        row + group * kIndexGroup / 2);
  }
}

inline void dequantize_index_row(const uint8_t* row, int64_t width, float* x) {
  const uint8_t* scales = row + width / 2;
  for (int64_t i = 0; i < width; ++i)
    x[i] = e2m1_at(row, i) * e8m0_to_float(scales[i / kIndexGroup]);
}

}  // namespace cachalot
