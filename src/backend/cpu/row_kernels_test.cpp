// The row kernels of every instruction set this machine has against the definitions of
// tensor/block_quantizers.h and against double.
#include "backend/cpu/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/cpu_info.h"
#include "tensor/block_quantizers.h"
#include "tensor/cache_rows.h"

namespace cachalot::cpu {
namespace {

// body(const RowKernels&) for every supported instruction set.
template <class Body>
void on_all_kernels(Body body) {
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    SCOPED_TRACE(std::string(name_of(isa)));
    body(row_kernels_for(isa));
  }
}

std::vector<bf16> random_row(std::mt19937& engine, int64_t n, float scale) {
  std::normal_distribution<float> draw;
  std::vector<bf16> row(n);
  for (bf16& value : row) value = to_bf16(draw(engine) * scale);
  return row;
}

std::vector<float> floats_of(const std::vector<bf16>& row) {
  std::vector<float> out;
  for (bf16 value : row) out.push_back(to_float(value));
  return out;
}

std::vector<float> random_floats(std::mt19937& engine, int64_t n) {
  return floats_of(random_row(engine, n, 1.0f));
}

// Rows of all magnitudes, with zeros, ties of the grids and a lone large value.
std::vector<std::vector<bf16>> rows_to_pack(int64_t n) {
  std::mt19937 engine(7);
  std::vector<std::vector<bf16>> rows = {std::vector<bf16>(n)};
  for (int exponent = -140; exponent <= 30; exponent += 5) {
    rows.push_back(random_row(engine, n, std::ldexp(1.0f, exponent)));
  }
  rows.push_back({});
  for (int64_t i = 0; i < n; ++i) rows.back().push_back(to_bf16((i % 49 - 24) * 0.25f));
  rows.push_back(random_row(engine, n, 1e-3f));
  rows.back()[n / 2] = to_bf16(-448.0f);
  return rows;
}

template <class Quantize>
void expect_packed(int64_t n, int64_t bytes, Quantize quantize,
                   void (*RowKernels::*pack)(const bf16*, int64_t, uint8_t*)) {
  on_all_kernels([&](const RowKernels& kernels) {
    for (const std::vector<bf16>& row : rows_to_pack(n)) {
      std::vector<uint8_t> expected(bytes), found(bytes);
      quantize(floats_of(row).data(), n, expected.data());
      (kernels.*pack)(row.data(), n, found.data());
      EXPECT_EQ(found, expected) << "width " << n;
    }
  });
}

TEST(RowKernels, PackWindowRowsAsDefined) {
  for (const int64_t n : {32, 96, 512}) {
    expect_packed(n, window_row_bytes(n), quantize_window_row, &RowKernels::pack_window);
  }
}

TEST(RowKernels, PackLatentsAsDefined) {
  for (const int64_t n : {16, 48, 96, 512}) {
    expect_packed(n, latent_row_bytes(n), quantize_latent_row, &RowKernels::pack_latent);
  }
}

TEST(RowKernels, PackIndexKeysAsDefined) {
  for (const int64_t n : {32, 96, 128}) {
    expect_packed(n, index_key_row_bytes(n), quantize_index_row, &RowKernels::pack_index_key);
  }
}

TEST(RowKernels, UnpackEveryCode) {
  std::mt19937 engine(3);
  on_all_kernels([&](const RowKernels& kernels) {
    const int64_t n = 528;  // a multiple of 16, for latents, and not of 32
    std::vector<uint8_t> row(latent_row_bytes(n));
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(engine());
    for (int64_t i = 0; i < n / 16; ++i) row[n / 2 + i] = static_cast<uint8_t>(i * 4 % 127);
    std::vector<float> expected(n), found(n);
    dequantize_latent_row(row.data(), n, expected.data());
    kernels.unpack_latent(row.data(), n, 0, n, found.data());
    EXPECT_EQ(found, expected);

    const int64_t width = 256;
    std::vector<uint8_t> window(window_row_bytes(width));
    for (int64_t i = 0; i < width; ++i) window[i] = i % 128 == 127 ? 0 : static_cast<uint8_t>(i);
    for (int64_t i = 0; i < width / 32; ++i) window[width + i] = static_cast<uint8_t>(100 + 9 * i);
    std::vector<float> wide(width), wide_found(width);
    dequantize_window_row(window.data(), width, wide.data());
    kernels.unpack_window(window.data(), width, 0, width, wide_found.data());
    EXPECT_EQ(wide_found, wide);
    std::vector<bf16> narrow(width);
    kernels.unpack_e4m3(window.data(), window.data() + width, width, narrow.data());
    EXPECT_EQ(floats_of(narrow), wide);
  });
}

TEST(RowKernels, DotProductsAreTheSameInEveryTile) {
  std::mt19937 engine(5);
  on_all_kernels([&](const RowKernels& kernels) {
    const int64_t rows = 9, outputs = 8, n = 77;
    const std::vector<float> x = random_floats(engine, rows * n);
    const std::vector<float> w = random_floats(engine, outputs * n);
    std::vector<float> all(rows * outputs);
    kernels.dots_f32(x.data(), n, rows, w.data(), n, outputs, n, all.data(), outputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < outputs; ++o) {
        float alone = 0;
        kernels.dots_f32(&x[r * n], n, 1, &w[o * n], n, 1, n, &alone, 1);
        EXPECT_EQ(alone, all[r * outputs + o]);
        double exact = 0, size = 0;
        for (int64_t i = 0; i < n; ++i) {
          exact += double{x[r * n + i]} * w[o * n + i];
          size += std::fabs(double{x[r * n + i]} * w[o * n + i]);
        }
        EXPECT_NEAR(alone, exact, size * n * 0x1p-24);
      }
    }
  });
}

TEST(RowKernels, SoftmaxMatchesDouble) {
  std::mt19937 engine(11);
  on_all_kernels([&](const RowKernels& kernels) {
    for (const int64_t n : {1, 7, 16, 131, 640}) {
      std::vector<float> scores = random_floats(engine, n);
      for (float& score : scores) score *= 30;
      std::vector<float> e = scores;
      const float scale = 0.125f, sink = 0.7f;
      const float sum = kernels.softmax(e.data(), n, scale, sink);
      double top = -1e30, expected = 0;
      for (float score : scores) top = std::max(top, double{score} * scale);
      for (int64_t i = 0; i < n; ++i) {
        const double exact = std::exp(double{scores[i]} * scale - top);
        expected += exact;
        EXPECT_NEAR(e[i], exact, exact * 0x1.01p-8);
        EXPECT_EQ(e[i], round_to_bf16(e[i]));
      }
      expected += std::exp(sink - top);
      EXPECT_NEAR(sum, expected, expected * 4e-6);
    }
  });
}

TEST(RowKernels, IndexScoresMatchDouble) {
  std::mt19937 engine(13);
  on_all_kernels([&](const RowKernels& kernels) {
    for (const int64_t width : {32, 64, 128}) {
      const int64_t heads = 5, keys = 37, bytes = index_key_row_bytes(width);
      std::vector<uint8_t> packed((heads + keys) * bytes);
      std::vector<std::vector<float>> values(heads + keys, std::vector<float>(width));
      for (int64_t r = 0; r < heads + keys; ++r) {
        const std::vector<float> row = random_floats(engine, width);
        quantize_index_row(row.data(), width, &packed[r * bytes]);
        dequantize_index_row(&packed[r * bytes], width, values[r].data());
      }
      const std::vector<float> weights = random_floats(engine, heads);
      std::vector<std::byte> query(index_query_bytes(heads, width));
      kernels.prepare_index_query(packed.data(), heads, width, query.data());
      std::vector<const uint8_t*> rows;
      for (int64_t k = 0; k < keys; ++k) rows.push_back(&packed[(heads + k) * bytes]);
      std::vector<float> scores(keys);
      kernels.index_scores(query.data(), weights.data(), heads, width, rows.data(), keys,
                           scores.data());
      for (int64_t k = 0; k < keys; ++k) {
        double expected = 0, size = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (int64_t i = 0; i < width; ++i) dot += double{values[h][i]} * values[heads + k][i];
          expected += weights[h] * std::max(dot, 0.0);
          size += std::fabs(weights[h] * dot);
        }
        EXPECT_NEAR(scores[k], expected, size * 1e-6);
        float alone = 0;
        kernels.index_scores(query.data(), weights.data(), heads, width, &rows[k], 1, &alone);
        EXPECT_EQ(alone, scores[k]);
      }
    }
  });
}

}  // namespace
}  // namespace cachalot::cpu
