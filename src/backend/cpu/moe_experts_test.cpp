#include <algorithm>

#include "backend/cpu/expert_outputs.h"
#include "backend/cpu/kernels/matmul_kernels.h"
#include "backend/cpu/matmul_test_data.h"
#include "backend/cpu/packed_weight.h"
#include "ops/experts.h"

namespace cachalot::cpu {
namespace {

using namespace testing;

struct TestExperts {
  int64_t dim, width;
  std::vector<TestWeight> weights;  // w1, w2, w3 of each expert
  std::vector<ExpertMatrices> experts;
  std::vector<TestWeight> shared_weights;
  SharedExpertMatrices shared;

  TestExperts(Random& random, int64_t dim, int64_t width, int count) : dim(dim), width(width) {
    for (int e = 0; e < count; ++e) {
      weights.push_back(fp4_weight(random, width, dim, 119, 124));
      weights.push_back(fp4_weight(random, dim, width, 119, 124));
      weights.push_back(fp4_weight(random, width, dim, 119, 124));
    }
    for (int e = 0; e < count; ++e) {
      experts.push_back({weights[3 * e].fp4, weights[3 * e + 1].fp4, weights[3 * e + 2].fp4});
    }
    shared_weights.push_back(fp8_weight(random, width, dim));
    shared_weights.push_back(fp8_weight(random, dim, width));
    shared_weights.push_back(fp8_weight(random, width, dim));
    shared = {shared_weights[0].dense, shared_weights[1].dense, shared_weights[2].dense};
  }
};

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;

  Choice(Random& random, int64_t tokens, int64_t k, int experts) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> order(experts);
      for (int e = 0; e < experts; ++e) order[e] = e;
      for (int64_t i = 0; i < k; ++i) {
        std::swap(order[i], order[random.integer(static_cast<int>(i), experts - 1)]);
        ids.push_back(order[i]);
        weights.push_back(random.uniform(0.1f, 1.0f));
      }
    }
  }
};

std::vector<bf16> run(Queue& queue, const TestExperts& e, const std::vector<bf16>& x,
                      const Choice& choice, int64_t first, int64_t tokens, float limit,
                      ExpertInput input = ExpertInput::fp8) {
  const int64_t k =
      static_cast<int64_t>(choice.ids.size()) * e.dim / static_cast<int64_t>(x.size());
  std::vector<bf16> y(tokens * e.dim);
  moe_experts(queue, {.x = {x.data() + first * e.dim, {tokens, e.dim}},
                      .ids = {choice.ids.data() + first * k, {tokens, k}},
                      .weights = {choice.weights.data() + first * k, {tokens, k}},
                      .experts = e.experts,
                      .shared = e.shared,
                      .limit = limit,
                      .input = input,
                      .y = {y.data(), {tokens, e.dim}}});
  return y;
}

// One row as ExpertInput::int8 leaves it.
std::vector<double> rounded_to_int8(const bf16* x, int64_t count) {
  std::vector<double> out = widened(x, count);
  for (int64_t first = 0; first < count; first += 32) {
    float largest = 0;
    for (int64_t i = first; i < first + 32; ++i)
      largest = std::fmax(largest, std::fabs(to_float(x[i])));
    const float scale = largest / 127;
    for (int64_t i = first; i < first + 32; ++i) {
      if (scale > 0) out[i] = std::nearbyint(to_float(x[i]) / scale) * double{scale};
    }
  }
  return out;
}

// One expert on one token, sums in double precision, the contract's roundings.
std::vector<bf16> expert(const bf16* x, const TestWeight& w1, const TestWeight& w2,
                         const TestWeight& w3, int64_t dim, int64_t width, float weight,
                         float limit, ExpertInput rounding) {
  const auto rounded = rounding == ExpertInput::int8 ? rounded_to_int8 : quantized;
  const std::vector<double> input = rounded(x, dim);
  std::vector<bf16> hidden(width), y(dim);
  for (int64_t i = 0; i < width; ++i) {
    double g = round_to_bf16(static_cast<float>(dot(input, w1, i).value));
    double u = round_to_bf16(static_cast<float>(dot(input, w3, i).value));
    if (limit > 0) {
      g = std::min<double>(g, limit);
      u = std::clamp<double>(u, -limit, limit);
    }
    hidden[i] = to_bf16(static_cast<float>(weight * (g / (1 + std::exp(-g)) * u)));
  }
  const std::vector<double> values = rounded(hidden.data(), width);
  for (int64_t i = 0; i < dim; ++i) y[i] = to_bf16(static_cast<float>(dot(values, w2, i).value));
  return y;
}

class CpuMoeExpertsWith : public ::testing::TestWithParam<ExpertInput> {};
INSTANTIATE_TEST_SUITE_P(Activations, CpuMoeExpertsWith,
                         ::testing::Values(ExpertInput::fp8, ExpertInput::int8),
                         [](const auto& test) {
                           return test.param == ExpertInput::fp8 ? "Fp8" : "Int8";
                         });

TEST_P(CpuMoeExpertsWith, FollowTheContract) {
  for (Isa isa : isas()) {
    ThreadTeam team(2);
    Queue queue(team, isa, Arena(64));
    Random random(11);
    const int64_t dim = 96, width = 64, tokens = 9, k = 3;
    const TestExperts e(random, dim, width, 5);
    const std::vector<bf16> x = random.values(tokens * dim, 8.0f);
    const Choice choice(random, tokens, k, 5);
    for (float limit : {0.0f, 10.0f}) {
      const std::vector<bf16> y = run(queue, e, x, choice, 0, tokens, limit, GetParam());
      int64_t differing = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<std::vector<bf16>> parts(5);
        for (int64_t i = t * k; i < (t + 1) * k; ++i) {
          const int32_t id = choice.ids[i];
          parts[id] =
              expert(&x[t * dim], e.weights[3 * id], e.weights[3 * id + 1], e.weights[3 * id + 2],
                     dim, width, choice.weights[i], limit, GetParam());
        }
        const std::vector<bf16> shared =
            expert(&x[t * dim], e.shared_weights[0], e.shared_weights[1], e.shared_weights[2], dim,
                   width, 1.0f, limit, ExpertInput::fp8);
        for (int64_t c = 0; c < dim; ++c) {
          float total = 0, size = std::fabs(to_float(shared[c]));
          for (const std::vector<bf16>& part : parts) {
            if (part.empty()) continue;
            total += to_float(part[c]);
            size += std::fabs(to_float(part[c]));
          }
          const float expected = round_to_bf16(total + to_float(shared[c]));
          const float found = to_float(y[t * dim + c]);
          differing += found != expected;
          // A sum that rounds the other way moves a BF16 value by one step, seldom.
          ASSERT_NEAR(found, expected, size * 0x1p-5) << name_of(isa) << " token " << t;
        }
      }
      EXPECT_LE(differing, tokens * dim / 20) << name_of(isa);
    }
  }
}

TEST_P(CpuMoeExpertsWith, ATokenIsTheSameAloneAndInCompany) {
  for (Isa isa : isas()) {
    Random random(12);
    const int64_t dim = 288, width = 96, k = 3, most = 210;
    const TestExperts e(random, dim, width, 4);
    const std::vector<bf16> x = random.values(most * dim, 4.0f);
    const Choice choice(random, most, k, 4);
    ThreadTeam one(1);
    Queue alone(one, isa, Arena(64));
    std::vector<bf16> expected;
    for (int64_t t = 0; t < most; ++t) {
      const std::vector<bf16> y = run(alone, e, x, choice, t, 1, 10.0f, GetParam());
      expected.insert(expected.end(), y.begin(), y.end());
    }
    for (int threads : {1, 2, 3}) {
      ThreadTeam team(threads);
      Queue queue(team, isa, Arena(64));
      for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 210}) {
        EXPECT_TRUE(same_bits(run(queue, e, x, choice, 0, tokens, 10.0f, GetParam()),
                              {expected.begin(), expected.begin() + tokens * dim}))
            << name_of(isa) << ", " << tokens << " tokens, " << threads << " threads";
      }
    }
  }
}

// Of some experts; the other rows hold what they held.
std::vector<bf16> run_outputs(Queue& queue, const TestExperts& e, const std::vector<bf16>& x,
                              const Choice& choice, int64_t tokens, int64_t k,
                              const std::vector<bool>& wanted) {
  std::vector<bf16> outputs(tokens * k * e.dim, bf16{0x7FC1});
  expert_outputs(queue,
                 {.x = {x.data(), {tokens, e.dim}},
                  .ids = {choice.ids.data(), {tokens, k}},
                  .weights = {choice.weights.data(), {tokens, k}},
                  .experts = e.experts,
                  .shared = e.shared,
                  .limit = 10.0f,
                  .y = {}},
                 wanted, {outputs.data(), {tokens, k, e.dim}});
  return outputs;
}

// Added up in the order of ids, with the shared expert's, they are the operation's result.
TEST(CpuExpertOutputs, AreThePartsOfTheOperation) {
  const std::vector<std::vector<bool>> parts = {{true, true, true, true, true},
                                                {false, false, false, false, false},
                                                {false, true, false, false, true},
                                                {false, false, true, false, false}};
  for (Isa isa : isas()) {
    Random random(14);
    const int64_t dim = 288, width = 96, k = 2;
    TestExperts e(random, dim, width, 5);
    // Silent: a token of its own for every pair has that expert's output as its result.
    for (TestWeight& weight : e.shared_weights) std::ranges::fill(weight.bytes, uint8_t{0});
    for (const int64_t tokens : {1, 3, 70}) {
      const std::vector<bf16> x = random.values(tokens * dim, 4.0f);
      const Choice choice(random, tokens, k, 5);
      std::vector<bf16> pairs;
      for (int64_t i = 0; i < tokens * k; ++i) {
        pairs.insert(pairs.end(), x.begin() + i / k * dim, x.begin() + (i / k + 1) * dim);
      }
      ThreadTeam team(3);
      Queue queue(team, isa, Arena(64));
      const std::vector<bf16> each = run(queue, e, pairs, choice, 0, tokens * k, 10.0f);
      for (const std::vector<bool>& wanted : parts) {
        std::vector<bf16> expected = each;
        for (int64_t i = 0; i < tokens * k; ++i) {
          if (!wanted[choice.ids[i]]) std::fill_n(&expected[i * dim], dim, bf16{0x7FC1});
        }
        EXPECT_TRUE(same_bits(run_outputs(queue, e, x, choice, tokens, k, wanted), expected))
            << name_of(isa) << ", " << tokens << " tokens";
      }
    }
  }
}

// Field fault "SwiGLU clamp": the gate from above only, up on both sides, before the product.
TEST(CpuMoeExperts, ClampsGateFromAboveAndUpOnBothSides) {
  const float gates[] = {-50, -10.5f, 9.9f, 10.1f, 80, 0, -1, 3};
  const float ups[] = {-80, -10.1f, 0, 10.1f, 80, 1, 2, -3};
  for (Isa isa : isas()) {
    std::vector<bf16> g(64), u(64), h(64);
    for (int i = 0; i < 64; ++i) {
      g[i] = to_bf16(gates[i / 8]);
      u[i] = to_bf16(ups[i % 8]);
    }
    matmul_kernels_for(isa).gated(g.data(), u.data(), 64, 10.0f, 0.75f, h.data());
    for (int i = 0; i < 64; ++i) {
      const double gate = std::min(to_float(g[i]), 10.0f);
      const double up = std::clamp(to_float(u[i]), -10.0f, 10.0f);
      const double expected = 0.75 * (gate / (1 + std::exp(-gate)) * up);
      EXPECT_NEAR(to_float(h[i]), expected, std::fabs(expected) * 0x1.01p-8)
          << name_of(isa) << " gate " << gates[i / 8] << " up " << ups[i % 8];
    }
  }
}

// All instruction sets that fuse agree in a block's sum exactly: they differ only where one adds in
// lanes. Every code meets every column; scales reach both ends.
TEST(CpuMoeExperts, Int8ProductsOfOneBlockAreExact) {
  for (Isa isa : isas()) {
    const MatmulKernels& kernels = int8_kernels_for(isa);
    Random random(13);
    const int64_t rows = 48, tokens = 24;
    std::vector<std::byte> memory(static_cast<size_t>(kernels.scratch_bytes) + 64 * (tokens + 2));
    std::byte* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    const TestWeight w = fp4_weight(random, rows, 32, 0, 230);
    std::vector<const void*> prepared;
    std::vector<bf16> x;
    for (int64_t t = 0; t < tokens; ++t, at += 64) {
      // Whole numbers with the largest at 127: the scale is 1.
      for (int i = 0; i < 32; ++i) {
        x.push_back(to_bf16(static_cast<float>(i == t % 32 ? 127 : random.integer(-127, 127))));
      }
      kernels.quantize(&x[32 * t], 0, 32, PackedWeight::Format::fp4, at);
      prepared.push_back(at);
    }
    for (int64_t count : {int64_t{1}, int64_t{4}, tokens}) {
      std::vector<float> y(count * rows);
      kernels.multiply({.weight = {.format = PackedWeight::Format::fp4,
                                   .rows = rows,
                                   .columns = 32,
                                   .data = w.fp4.codes.data,
                                   .row_scales = w.fp4.scales.data},
                        .first_row = 0,
                        .last_row = rows,
                        .x = prepared.data(),
                        .tokens = count,
                        .y_f32 = y.data(),
                        .y_stride = rows},
                       at);
      for (int64_t i = 0; i < count * rows; ++i) {
        const double exact = dot(widened(&x[i / rows * 32], 32), w, i % rows).value;
        ASSERT_EQ(y[i], static_cast<float>(exact)) << name_of(isa) << " element " << i;
      }
    }
  }
}

// Products of the kernels themselves: rows 16 .. 31 of an FP4 weight of 32 rows and 32 columns.
std::vector<float> multiply_fp4(const MatmulKernels& kernels, const std::vector<uint8_t>& codes,
                                const std::vector<uint8_t>& scales, const std::vector<bf16>& x,
                                int64_t tokens) {
  std::vector<uint8_t> scratch(static_cast<size_t>(kernels.scratch_bytes) + 64);
  void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  std::vector<float> prepared(256), y(16 * tokens);
  kernels.quantize(x.data(), 0, 32, PackedWeight::Format::fp4, prepared.data());
  const std::vector<const void*> rows(tokens, prepared.data());
  std::vector<uint8_t> packed;
  if (kernels.pack) {
    packed.resize(static_cast<size_t>(kernels.packed_bytes(tokens, 32)));
    for (int64_t tile = 0; tile * kPackTokens < tokens; ++tile) {
      kernels.pack(rows.data(), tokens, 32, PackedWeight::Format::fp4, tile, 0, 32, packed.data());
    }
  }
  kernels.multiply({.weight = {.format = PackedWeight::Format::fp4,
                               .rows = 32,
                               .columns = 32,
                               .data = codes.data(),
                               .row_scales = scales.data()},
                    .first_row = 16,
                    .last_row = 32,
                    .x = rows.data(),
                    .packed = packed.data(),
                    .tokens = tokens,
                    .y_f32 = y.data(),
                    .y_stride = 16,
                    .y_first_row = 16},
                   aligned);
  return y;
}

// The same of any FP4 weight and of `tokens` rows of x.
std::vector<float> multiply_rows(const MatmulKernels& kernels, const TestWeight& w, const bf16* x,
                                 int64_t tokens) {
  const int64_t rows = w.fp4.rows, columns = w.fp4.columns;
  const int64_t stride = activation_stride(kernels, columns);
  const auto aligned = [](std::vector<std::byte>& memory) {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  };
  std::vector<std::byte> scratch(static_cast<size_t>(kernels.scratch_bytes) + 64);
  std::vector<std::byte> prepared(static_cast<size_t>(tokens * stride) + 64, std::byte{0xFF});
  std::vector<const void*> pointers;
  for (int64_t t = 0; t < tokens; ++t) {
    std::byte* row = aligned(prepared) + t * stride;
    for (int64_t k = 0; k < columns; k += 32) {
      kernels.quantize(x + t * columns + k, k, 32, PackedWeight::Format::fp4, row);
    }
    pointers.push_back(row);
  }
  std::vector<std::byte> packed;
  if (kernels.pack) {
    packed.resize(static_cast<size_t>(kernels.packed_bytes(tokens, columns)) + 64);
    for (int64_t tile = 0; tile * kPackTokens < tokens; ++tile) {
      kernels.pack(pointers.data(), tokens, columns, PackedWeight::Format::fp4, tile, 0, columns,
                   aligned(packed));
    }
  }
  std::vector<float> y(tokens * rows);
  for (int64_t first = 0; first < rows; first += 32) {
    kernels.multiply({.weight = {.format = PackedWeight::Format::fp4,
                                 .rows = rows,
                                 .columns = columns,
                                 .data = w.fp4.codes.data,
                                 .row_scales = w.fp4.scales.data},
                      .first_row = first,
                      .last_row = std::min(rows, first + 32),
                      .x = pointers.data(),
                      .packed = kernels.pack ? aligned(packed) : nullptr,
                      .tokens = tokens,
                      .y_f32 = y.data(),
                      .y_stride = rows},
                     aligned(scratch));
  }
  return y;
}

// Scales within few and many powers of two and with 2^-127 among them, inputs of a usual size and a
// large one, which kernels may treat differently: all the same for every number of tokens.
TEST(CpuMoeExperts, Fp4ProductsAreTheSameAloneAndInCompany) {
  struct Range {
    int low, high;
    float large;
  };
  const int64_t rows = 45, most = 21;
  for (Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels_for(isa);
    Random random(17);
    for (const Range& range : {Range{118, 124, 0x1p70f}, {70, 180, 0x1p60f}, {0, 230, 1.0f}}) {
      for (int64_t columns : {32, 224, 256, 288, 512, 768}) {
        const TestWeight w = fp4_weight(random, rows, columns, range.low, range.high);
        std::vector<bf16> x = random.values(most * columns, 3.0f);
        for (int64_t i = 0; i < columns; ++i) {
          x[columns + i] = to_bf16(to_float(x[columns + i]) * range.large);
        }
        std::vector<float> alone;
        for (int64_t t = 0; t < most; ++t) {
          const std::vector<float> y = multiply_rows(kernels, w, &x[t * columns], 1);
          const std::vector<double> values = quantized(&x[t * columns], columns);
          for (int64_t r = 0; r < rows; ++r) {
            const Dot expected = dot(values, w, r);
            ASSERT_NEAR(y[r], expected.value, expected.fp32_bound(columns))
                << name_of(isa) << " token " << t << " row " << r << " columns " << columns;
          }
          alone.insert(alone.end(), y.begin(), y.end());
        }
        for (int64_t tokens : {2, 3, 4, 5, 6, 8, 9, 12, 21}) {
          for (int64_t first : {int64_t{0}, most - tokens}) {
            const std::vector<float> y = multiply_rows(kernels, w, &x[first * columns], tokens);
            for (int64_t i = 0; i < tokens * rows; ++i) {
              ASSERT_EQ(y[i], alone[first * rows + i])
                  << name_of(isa) << " tokens " << tokens << " columns " << columns << " at " << i;
            }
          }
        }
      }
    }
  }
}

// Field fault "block scales", experts: all E8M0 codes a checkpoint may hold.
TEST(CpuMoeExperts, Fp4ScalesAreNotFlushed) {
  for (Isa isa : isas()) {
    std::vector<bf16> x(32, to_bf16(0));
    x[21] = to_bf16(1);
    for (int code = 0; code < 255; ++code) {
      const std::vector<uint8_t> codes(32 * 16, 0x22);  // 1, 1
      const std::vector<uint8_t> scales(32, static_cast<uint8_t>(code));
      for (int64_t tokens : {1, 40}) {
        for (float y : multiply_fp4(matmul_kernels_for(isa), codes, scales, x, tokens)) {
          ASSERT_EQ(y, e8m0_to_float(static_cast<uint8_t>(code))) << "scale code " << code;
        }
      }
    }
  }
}

// Rows whose scales a kernel may treat differently, side by side.
TEST(CpuMoeExperts, Fp4RowsHaveScalesOfTheirOwn) {
  for (Isa isa : isas()) {
    std::vector<bf16> x(32, to_bf16(0));
    x[21] = to_bf16(1);
    const std::vector<uint8_t> codes(32 * 16, 0x22);  // 1, 1
    std::vector<uint8_t> scales(32);
    for (int64_t r = 0; r < 32; ++r) scales[r] = static_cast<uint8_t>(r * 101 % 255);
    for (int64_t tokens : {1, 2, 5, 40}) {
      const std::vector<float> y = multiply_fp4(matmul_kernels_for(isa), codes, scales, x, tokens);
      for (int64_t i = 0; i < 16 * tokens; ++i) {
        ASSERT_EQ(y[i], e8m0_to_float(scales[16 + i % 16])) << name_of(isa) << " output " << i;
      }
    }
  }
}

TEST(CpuMoeExperts, DecodesEveryFp4CodeInEveryColumn) {
  for (Isa isa : isas()) {
    std::vector<uint8_t> codes(32 * 16);
    for (int64_t r = 0; r < 32; ++r) {
      for (int64_t i = 0; i < 16; ++i) {
        codes[r * 16 + i] = static_cast<uint8_t>((r + 2 * i) % 16 | (r + 2 * i + 1) % 16 << 4);
      }
    }
    const std::vector<uint8_t> scales(32, 125);
    for (int64_t column = 0; column < 32; ++column) {
      std::vector<bf16> x(32, to_bf16(0));
      x[column] = to_bf16(1);
      for (int64_t tokens : {1, 40}) {
        const std::vector<float> y =
            multiply_fp4(matmul_kernels_for(isa), codes, scales, x, tokens);
        for (int64_t i = 0; i < 16 * tokens; ++i) {
          const uint8_t code = static_cast<uint8_t>((16 + i % 16 + column) % 16);
          ASSERT_EQ(y[i], e2m1_to_float(code) * 0.25f)
              << name_of(isa) << " code " << int{code} << " column " << column;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cachalot::cpu
