// Random matrices and activations for the tests of the matrix operations, and the released
// arithmetic in double precision: no order of additions matters there.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/queue.h"
#include "base/cpu_info.h"
#include "base/number_formats.h"
#include "tensor/matrix.h"

namespace cachalot::cpu::testing {

inline std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa isa : kAllIsas) {
    if (supports(isa)) out.push_back(isa);
  }
  return out;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  uint8_t e4m3() {
    const int code = integer(0, 255);
    return static_cast<uint8_t>((code & 0x7F) == 0x7F ? code - 1 : code);  // no NaN
  }
  std::vector<bf16> values(int64_t count, float size) {
    std::vector<bf16> out(count);
    for (bf16& v : out) v = to_bf16(uniform(-size, size));
    return out;
  }

 private:
  std::mt19937 engine_;
};

// The weight in double precision beside its packed form, which starts at an odd address.
struct TestWeight {
  DenseMatrix dense;
  Fp4Matrix fp4;
  std::vector<uint8_t> bytes;
  std::vector<float> tile_scales;
  std::vector<uint8_t> row_scales;
  std::vector<double> exact;  // [rows, columns]

  double at(int64_t row, int64_t column) const { return exact[row * dense.columns + column]; }
};

inline TestWeight fp8_weight(Random& random, int64_t rows, int64_t columns,
                             const std::vector<float>& scales = {}) {
  TestWeight w;
  const int64_t tiles = blocks_of(columns);
  w.bytes.resize(rows * columns + 1);
  for (uint8_t& byte : w.bytes) byte = random.e4m3();
  w.tile_scales.resize(blocks_of(rows) * tiles);
  for (size_t i = 0; i < w.tile_scales.size(); ++i) {
    w.tile_scales[i] =
        scales.empty() ? random.uniform(0x1p-9f, 0x1p-8f) : scales[i % scales.size()];
  }
  w.dense = {.rows = rows,
             .columns = columns,
             .codes = {w.bytes.data() + 1, {rows, columns}},
             .scales = {w.tile_scales.data(), {blocks_of(rows), tiles}},
             .values = {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const float scale = w.tile_scales[i / columns / 32 * tiles + i % columns / 32];
    w.exact.push_back(static_cast<double>(e4m3_to_float(w.bytes[i + 1])) * scale);
  }
  return w;
}

inline TestWeight bf16_weight(Random& random, int64_t rows, int64_t columns) {
  TestWeight w;
  const std::vector<bf16> values = random.values(rows * columns, 1.0f);
  w.bytes.resize(rows * columns * 2);
  std::memcpy(w.bytes.data(), values.data(), w.bytes.size());
  w.dense = {.rows = rows,
             .columns = columns,
             .codes = {},
             .scales = {},
             .values = {reinterpret_cast<const bf16*>(w.bytes.data()), {rows, columns}}};
  for (bf16 v : values) w.exact.push_back(to_float(v));
  return w;
}

inline TestWeight fp4_weight(Random& random, int64_t rows, int64_t columns, int low, int high) {
  TestWeight w;
  w.bytes.resize(rows * columns / 2 + 1);
  for (uint8_t& byte : w.bytes) byte = static_cast<uint8_t>(random.integer(0, 255));
  w.row_scales.resize(rows * columns / 32 + 1);
  for (uint8_t& scale : w.row_scales) scale = static_cast<uint8_t>(random.integer(low, high));
  w.dense.columns = columns;
  w.fp4 = {.rows = rows,
           .columns = columns,
           .codes = {w.bytes.data() + 1, {rows, columns / 2}},
           .scales = {w.row_scales.data() + 1, {rows, columns / 32}}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint8_t byte = w.bytes[i / 2 + 1];
    const float value = e2m1_to_float(i % 2 ? byte >> 4 : byte & 0xF);
    w.exact.push_back(static_cast<double>(value) * e8m0_to_float(w.row_scales[i / 32 + 1]));
  }
  return w;
}

// One row as the FP8 quantizer leaves it (spec: model, 2.2).
inline std::vector<double> quantized(const bf16* x, int64_t count) {
  std::vector<double> out(count);
  for (int64_t first = 0; first < count; first += 32) {
    float largest = 0;
    for (int64_t i = first; i < first + 32; ++i)
      largest = std::fmax(largest, std::fabs(to_float(x[i])));
    const float scale = e8m0_to_float(fp8_scale_code(largest));
    for (int64_t i = first; i < first + 32; ++i) {
      out[i] = static_cast<double>(e4m3_to_float(float_to_e4m3(to_float(x[i]) / scale))) * scale;
    }
  }
  return out;
}

inline std::vector<double> widened(const bf16* x, int64_t count) {
  std::vector<double> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(x[i]);
  return out;
}

struct Dot {
  double value = 0;
  double size = 0;  // sum of magnitudes

  // What FP32 sums may be off: a rounding per addition and product in the fullest of 8 lanes.
  double fp32_bound(int64_t count) const {
    const int64_t roundings = count / 4 + 8;
    return size * 0x1p-24 * static_cast<double>(roundings);
  }
};

inline Dot dot(const std::vector<double>& x, const TestWeight& w, int64_t row) {
  Dot out;
  for (size_t i = 0; i < x.size(); ++i) {
    const double term = x[i] * w.at(row, static_cast<int64_t>(i));
    out.value += term;
    out.size += std::fabs(term);
  }
  return out;
}

inline bool same_bits(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)) == 0;
}

}  // namespace cachalot::cpu::testing
