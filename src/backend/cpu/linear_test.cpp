#include "ops/linear.h"

#include "backend/cpu/matmul_test_data.h"

namespace cachalot::cpu {
namespace {

using namespace testing;

std::vector<float> run_f32(Queue& queue, const std::vector<bf16>& x, const TestWeight& w) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / w.dense.columns;
  std::vector<float> y(tokens * w.dense.rows);
  linear(queue, {.x = {x.data(), {tokens, w.dense.columns}},
                 .weight = w.dense,
                 .norm = {},
                 .y = {},
                 .y_f32 = {y.data(), {tokens, w.dense.rows}}});
  return y;
}

std::vector<bf16> run_bf16(Queue& queue, const std::vector<bf16>& x, const TestWeight& w,
                           View<const bf16> norm = {}, float eps = 0) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / w.dense.columns;
  std::vector<bf16> y(tokens * w.dense.rows);
  linear(queue, {.x = {x.data(), {tokens, w.dense.columns}},
                 .weight = w.dense,
                 .norm = norm,
                 .norm_eps = eps,
                 .y = {y.data(), {tokens, w.dense.rows}},
                 .y_f32 = {}});
  return y;
}

void expect_near(const std::vector<float>& y, const std::vector<bf16>& x, const TestWeight& w,
                 bool quantize) {
  const int64_t columns = w.dense.columns, rows = w.dense.rows;
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / columns; ++t) {
    const bf16* row = x.data() + t * columns;
    const std::vector<double> values = quantize ? quantized(row, columns) : widened(row, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const Dot expected = dot(values, w, r);
      ASSERT_NEAR(y[t * rows + r], expected.value, expected.fp32_bound(columns))
          << "token " << t << " row " << r << " of [" << rows << ", " << columns << "]";
    }
  }
}

TEST(CpuLinear, Fp8WeightTakesQuantizedActivations) {
  for (Isa isa : isas()) {
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(64));
    Random random(1);
    for (int64_t rows : {1, 5, 16, 31, 33, 64, 70}) {
      for (int64_t columns : {32, 96, 256, 288, 416}) {
        for (int64_t tokens : {1, 2, 3, 4, 7, 13}) {
          const TestWeight w = fp8_weight(random, rows, columns);
          const std::vector<bf16> x = random.values(tokens * columns, 3.0f);
          expect_near(run_f32(queue, x, w), x, w, true);
        }
      }
    }
  }
}

TEST(CpuLinear, Bf16WeightTakesActivationsAsTheyAre) {
  for (Isa isa : isas()) {
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    Random random(2);
    for (int64_t rows : {1, 17, 70}) {
      for (int64_t columns : {32, 416}) {
        for (int64_t tokens : {1, 4, 9}) {
          const TestWeight w = bf16_weight(random, rows, columns);
          const std::vector<bf16> x = random.values(tokens * columns, 3.0f);
          expect_near(run_f32(queue, x, w), x, w, false);
        }
      }
    }
  }
}

// Field fault "block scales": 2^-127 is not flushed, 2^127 does not overflow on the way.
TEST(CpuLinear, KeepsEveryScale) {
  for (Isa isa : isas()) {
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    for (int code : {0, 1, 120, 127, 128, 254}) {
      const float scale = e8m0_to_float(static_cast<uint8_t>(code));
      Random random(3);
      for (int64_t tokens : {1, 20}) {
        TestWeight w = fp8_weight(random, 32, 64, {scale});
        for (uint8_t& byte : w.bytes) byte = 0x38;  // 1
        std::vector<bf16> x(tokens * 64, to_bf16(0));
        for (int64_t t = 0; t < tokens; ++t) x[t * 64 + 40] = to_bf16(1);
        for (float y : run_f32(queue, x, w)) ASSERT_EQ(y, scale) << "scale code " << code;
      }
    }
  }
}

// A weight row of one code each, an activation of one 1 each: every product by itself.
TEST(CpuLinear, DecodesEveryFp8CodeInEveryColumn) {
  for (Isa isa : isas()) {
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    const int64_t rows = 256, columns = 64;
    Random random(8);
    TestWeight w = fp8_weight(random, rows, columns, {0x1p-4f});
    for (int64_t i = 0; i < rows * columns; ++i) {
      w.bytes[i + 1] = static_cast<uint8_t>((i / columns & 0x7F) == 0x7F ? 0 : i / columns);
    }
    std::vector<bf16> x(columns * columns, to_bf16(0));
    for (int64_t k = 0; k < columns; ++k) x[k * columns + k] = to_bf16(1);
    for (int64_t tokens : {int64_t{1}, columns}) {
      for (int64_t first = 0; first < columns; first += tokens) {
        const std::vector<float> y = run_f32(
            queue, {x.begin() + first * columns, x.begin() + (first + tokens) * columns}, w);
        for (int64_t i = 0; i < tokens * rows; ++i) {
          ASSERT_EQ(y[i], e4m3_to_float(w.bytes[i % rows * columns + 1]) * 0x1p-4f)
              << name_of(isa) << " code " << i % rows << " column " << first + i / rows;
        }
      }
    }
  }
}

TEST(CpuLinear, ARowIsTheSameAloneAndInCompany) {
  for (Isa isa : isas()) {
    Random random(4);
    const int64_t columns = 544;
    // Scales that are powers of two are multiplied in another place than those that are not.
    for (const TestWeight& w : {fp8_weight(random, 83, columns),
                                fp8_weight(random, 83, columns, {0x1p-9f, 0x1p-3f, 1.0f}),
                                fp8_weight(random, 83, columns, {0x1p-9f, 0x1p3f, 0.3f}),
                                bf16_weight(random, 83, columns)}) {
      const std::vector<bf16> x = random.values(400 * columns, 2.0f);
      ThreadTeam one(1);
      Queue alone(one, isa, Arena(64));
      std::vector<bf16> expected;
      for (int64_t t = 0; t < 400; ++t) {
        const std::vector<bf16> row(x.begin() + t * columns, x.begin() + (t + 1) * columns);
        const std::vector<bf16> y = run_bf16(alone, row, w);
        expected.insert(expected.end(), y.begin(), y.end());
      }
      for (int threads : {1, 2, 3}) {
        ThreadTeam team(threads);
        Queue queue(team, isa, Arena(64));
        for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 191, 400}) {
          const std::vector<bf16> rows(x.begin(), x.begin() + tokens * columns);
          EXPECT_TRUE(same_bits(run_bf16(queue, rows, w),
                                {expected.begin(), expected.begin() + tokens * w.dense.rows}))
              << name_of(isa) << ", " << tokens << " tokens, " << threads << " threads";
        }
      }
    }
  }
}

// One token may take other instructions than many, which must not show with any magnitude.
TEST(CpuLinear, ARowOfAnyMagnitudeIsTheSameAloneAndInCompany) {
  // Products and sums that are zeros or denormals, near the largest number, and all between.
  struct Range {
    int low, high;  // exponents of activations
  };
  const std::vector<float> extremes = {0x1p-64f, 0x1p64f, 1.0f, 0x1p-30f, 0x1p63f};
  for (Isa isa : isas()) {
    Random random(9);
    const int64_t rows = 48, columns = 416, tokens = 17;
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    for (const TestWeight& w :
         {fp8_weight(random, rows, columns, extremes), fp8_weight(random, rows, columns, {0x1p-8f}),
          fp8_weight(random, rows, columns, {0x1p-8f, 0.3f}), bf16_weight(random, rows, columns)}) {
      for (const Range range : {Range{-133, -90}, Range{-60, -30}, Range{-46, 47}, Range{40, 60}}) {
        std::vector<bf16> x;
        for (int64_t i = 0; i < tokens * columns; ++i) {
          const float sign = random.integer(0, 1) ? 1.0f : -1.0f;
          const float value =
              std::ldexp(random.uniform(1, 2), random.integer(range.low, range.high));
          x.push_back(to_bf16(random.integer(0, 4) ? sign * value : 0.0f));
        }
        // Activations as they are (as three groups of outputs) and quantized.
        const auto kept = [&](int64_t first, int64_t count) {
          std::vector<bf16> y(count * rows);
          std::vector<bf16> repeated;
          for (int64_t t = first; t < first + count; ++t) {
            for (int group = 0; group < 3; ++group) {
              repeated.insert(repeated.end(), x.begin() + t * columns,
                              x.begin() + (t + 1) * columns);
            }
          }
          grouped_linear(queue, {.x = {repeated.data(), {count, 3, columns}},
                                 .weight = w.dense,
                                 .y = {y.data(), {count, 3, rows / 3}}});
          return y;
        };
        const auto plain = [&](int64_t first, int64_t count) {
          return run_bf16(queue,
                          {x.begin() + first * columns, x.begin() + (first + count) * columns}, w);
        };
        const std::vector<bf16> kept_all = kept(0, tokens), plain_all = plain(0, tokens);
        for (int64_t count : {1, 2, 3, 5}) {
          for (int64_t first = 0; first + count <= tokens; first += count) {
            const auto part = [&](const std::vector<bf16>& all) {
              return std::vector<bf16>(all.begin() + first * rows,
                                       all.begin() + (first + count) * rows);
            };
            ASSERT_TRUE(same_bits(kept(first, count), part(kept_all)))
                << name_of(isa) << ", kept, token " << first << " of " << count;
            ASSERT_TRUE(same_bits(plain(first, count), part(plain_all)))
                << name_of(isa) << ", token " << first << " of " << count;
          }
        }
      }
    }
  }
}

// So many columns that a decoded panel holds few rows, or none.
TEST(CpuLinear, ALongRowIsTheSameAloneAndInCompany) {
  for (Isa isa : isas()) {
    Random random(11);
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    const int64_t tokens = 11;
    for (int64_t columns : {4128, 17408}) {
      const TestWeight w = fp8_weight(random, 45, columns, {0x1p-9f, 0x1p-3f, 1.0f});
      const std::vector<bf16> x = random.values(tokens * columns, 2.0f);
      const std::vector<bf16> all = run_bf16(queue, x, w);
      for (int64_t count : {1, 3}) {
        const std::vector<bf16> few(x.begin(), x.begin() + count * columns);
        EXPECT_TRUE(
            same_bits(run_bf16(queue, few, w), {all.begin(), all.begin() + count * w.dense.rows}))
            << name_of(isa) << ", " << columns << " columns, " << count << " tokens";
      }
    }
  }
}

TEST(CpuLinear, RoundsToBf16ThenNormalises) {
  for (Isa isa : isas()) {
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(64));
    Random random(5);
    const TestWeight w = fp8_weight(random, 96, 128);
    const std::vector<bf16> x = random.values(5 * 128, 2.0f);
    const std::vector<bf16> norm = random.values(96, 2.0f);
    const std::vector<bf16> plain = run_bf16(queue, x, w);
    const std::vector<float> sums = run_f32(queue, x, w);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].bits, to_bf16(sums[i]).bits);
    const std::vector<bf16> normed = run_bf16(queue, x, w, {norm.data(), {96}}, 1e-20f);
    for (int64_t tokens : {1, 2}) {
      const std::vector<bf16> few(x.begin(), x.begin() + tokens * 128);
      EXPECT_TRUE(same_bits(run_bf16(queue, few, w, {norm.data(), {96}}, 1e-20f),
                            {normed.begin(), normed.begin() + tokens * 96}));
    }
    for (int64_t t = 0; t < 5; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < 96; ++i) squares += std::pow(to_float(plain[t * 96 + i]), 2);
      for (int64_t i = 0; i < 96; ++i) {
        const double y = to_float(norm[i]) * to_float(plain[t * 96 + i]) / std::sqrt(squares / 96);
        EXPECT_NEAR(to_float(normed[t * 96 + i]), y, std::fabs(y) * 0x1.01p-8);
      }
    }
  }
}

TEST(CpuGroupedLinear, MultipliesEachGroupWithItsOwnMatrix) {
  for (Isa isa : isas()) {
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(64));
    Random random(6);
    const int64_t groups = 3, outputs = 32, columns = 96;
    for (int64_t tokens : {1, 8}) {
      for (const TestWeight& w : {fp8_weight(random, groups * outputs, columns),
                                  bf16_weight(random, groups * outputs, columns)}) {
        const std::vector<bf16> x = random.values(tokens * groups * columns, 2.0f);
        std::vector<bf16> y(tokens * groups * outputs);
        grouped_linear(queue, {.x = {x.data(), {tokens, groups, columns}},
                               .weight = w.dense,
                               .y = {y.data(), {tokens, groups, outputs}}});
        for (int64_t i = 0; i < tokens * groups * outputs; ++i) {
          const int64_t row = i % (groups * outputs);
          const Dot expected = dot(widened(x.data() + i / outputs * columns, columns), w, row);
          ASSERT_NEAR(to_float(y[i]), expected.value,
                      std::fabs(expected.value) * 0x1.01p-8 + expected.fp32_bound(columns));
        }
      }
    }
  }
}

// Groups of outputs that start anywhere in a scale tile.
TEST(CpuGroupedLinear, ATokenIsTheSameAloneAndInCompany) {
  for (Isa isa : isas()) {
    ThreadTeam team(1);
    Queue queue(team, isa, Arena(64));
    Random random(10);
    const int64_t groups = 2, columns = 288, tokens = 33;
    for (int64_t outputs : {40, 46, 424}) {
      const TestWeight w =
          fp8_weight(random, groups * outputs, columns, {0x1p-9f, 0x1p-3f, 1.0f, 0x1p2f, 0x1p-7f});
      const std::vector<bf16> x = random.values(tokens * groups * columns, 2.0f);
      const auto run = [&](int64_t first, int64_t count) {
        std::vector<bf16> y(count * groups * outputs);
        grouped_linear(queue, {.x = {x.data() + first * groups * columns, {count, groups, columns}},
                               .weight = w.dense,
                               .y = {y.data(), {count, groups, outputs}}});
        return y;
      };
      const std::vector<bf16> all = run(0, tokens);
      const auto at = [&](int64_t token) { return all.begin() + token * groups * outputs; };
      for (int64_t count : {1, 2, 17}) {
        for (int64_t first = 0; first < 6; first += count) {
          EXPECT_TRUE(same_bits(run(first, count), {at(first), at(first + count)}))
              << name_of(isa) << ", token " << first << " of " << count << ", " << outputs;
        }
      }
    }
  }
}

TEST(CpuHead, ComputesTheRowsAskedFor) {
  for (Isa isa : isas()) {
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(64));
    Random random(7);
    const int64_t vocabulary = 101, dim = 64;
    const TestWeight w = bf16_weight(random, vocabulary, dim);
    const std::vector<bf16> x = random.values(6 * dim, 2.0f);
    const std::vector<int32_t> rows = {5, 0, 5, 2};
    std::vector<float> logits(rows.size() * vocabulary);
    head(queue, {.x = {x.data(), {6, dim}},
                 .rows = {rows.data(), {4}},
                 .weight = w.dense.values,
                 .logits = {logits.data(), {4, vocabulary}}});
    for (size_t i = 0; i < logits.size(); ++i) {
      const Dot expected = dot(widened(x.data() + rows[i / vocabulary] * dim, dim), w,
                               static_cast<int64_t>(i) % vocabulary);
      ASSERT_NEAR(logits[i], expected.value, expected.fp32_bound(dim));
    }
  }
}

}  // namespace
}  // namespace cachalot::cpu
