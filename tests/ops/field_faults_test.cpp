// Cases that went wrong in other engines and that one operation can show, on every queue.
#include <algorithm>
#include <cmath>

#include "model/rotary.h"
#include "random_tensors.h"
#include "tensor/block_quantizers.h"
#include "tensor/buffer.h"
#include "test_queues.h"

namespace cachalot {
namespace {

constexpr int32_t kPositions[] = {0, 127, 4095, 65536, 70001};

// A vector whose pairs are (1, 0), rotated at each position by prepare_query: (cos, sin).
template <class Q>
std::vector<float> rotated_units(Q& queue, const std::vector<float>& frequencies,
                                 int32_t position) {
  const int64_t pairs = static_cast<int64_t>(frequencies.size()), head_dim = 2 * pairs;
  RandomTensors tensors(0);
  const View<bf16> q = tensors.tensor<bf16>({1, 1, head_dim});
  for (int64_t i = 0; i < head_dim; i += 2) q.data[i] = to_bf16(1);
  prepare_query(
      queue,
      PrepareQueryArgs{.rows = tensors.step({{.slot = 0, .first = position, .count = 1}}),
                       .frequencies = {frequencies.data(), {pairs}},
                       .q = q,
                       .kv = tensors.tensor<bf16>({1, head_dim}),
                       .window_rows = tensors.tensor<uint8_t>({1, window_row_bytes(head_dim)})});
  std::vector<float> out;
  for (int64_t i = 0; i < head_dim; ++i) out.push_back(to_float(q.data[i]));
  return out;
}

// The angle is float(position) * frequency in FP32; from 2^14 radians on, that rounding alone may
// exceed 1e-3. So cosine and sine are compared at the angle as defined, and the angle itself with
// double precision: within 1e-3, or half an FP32 unit where that is more.
TEST(FieldFaults, RotaryAnglesHoldAtLargePositions) {
  const std::vector<float> tables[] = {rope_frequencies(64, 10000, 0, 16, 32, 1),
                                       rope_frequencies(64, 160000, 65536, 16, 32, 1)};
  on_all_queues([&](auto& queue) {
    for (const auto& frequencies : tables)
      for (const int32_t position : kPositions) {
        const std::vector<float> units = rotated_units(queue, frequencies, position);
        for (size_t i = 0; i < frequencies.size(); ++i) {
          const float angle = static_cast<float>(position) * frequencies[i];
          EXPECT_EQ(units[2 * i], round_to_bf16(static_cast<float>(std::cos(double{angle}))));
          EXPECT_EQ(units[2 * i + 1], round_to_bf16(static_cast<float>(std::sin(double{angle}))));
          const double exact = static_cast<double>(position) * frequencies[i];
          EXPECT_NEAR(angle, exact, std::max(1e-3, exact * 0x1p-24));
        }
      }
  });
}

// Attention to nothing but one's own row returns it: rotated forward as key, back as output. What
// stays is the FP8 of the key and BF16 roundings.
TEST(FieldFaults, InverseRotationCancels) {
  const std::vector<float> frequencies = rope_frequencies(64, 160000, 65536, 16, 32, 1);
  const int64_t head_dim = 64;
  on_all_queues([&](auto& queue) {
    for (const int32_t position : kPositions) {
      RandomTensors tensors(3);
      const StepRows rows = tensors.step({{.slot = 0, .first = position, .count = 1}});
      const View<const float> table{frequencies.data(), {32}};
      const View<bf16> kv = tensors.bf16s({1, head_dim});
      const View<uint8_t> row = tensors.tensor<uint8_t>({1, window_row_bytes(head_dim)});
      prepare_query(queue, PrepareQueryArgs{
                               .rows = rows, .frequencies = table, .kv = kv, .window_rows = row});
      const View<float> sink = tensors.tensor<float>({1});
      sink.data[0] = -1e30f;
      const View<bf16> o = tensors.tensor<bf16>({1, 1, head_dim});
      sparse_attention(
          queue,
          SparseAttentionArgs{.rows = rows,
                              .q = tensors.tensor<bf16>({1, 1, head_dim}),
                              .window_rows = row,
                              .ring = tensors.tensor<uint8_t>({1, 1, window_row_bytes(head_dim)}),
                              .window = 1,
                              .sink = sink,
                              .frequencies = table,
                              .scale = 0.125f,
                              .o = o});
      // A pair's error is at most the FP8 rounding of both members, 2^-4 of each (half a step of
      // 2^-3), and two BF16 roundings.
      for (int64_t i = 0; i < head_dim; i += 2) {
        const float a = to_float(kv.data[i]), b = to_float(kv.data[i + 1]);
        const float length = std::hypot(a, b);
        EXPECT_LE(std::hypot(to_float(o.data[i]) - a, to_float(o.data[i + 1]) - b),
                  length * (0x1p-4f + 0x1p-6f) + 0x1p-10f)
            << "position " << position << ", pair " << i / 2;
      }
    }
  });
}

// Weights that pick single inputs: gate[i] = x[i], up[i] = x[32 + i]; output i = hidden[i].
struct PickingExpert {
  static DenseMatrix fp8(RandomTensors& tensors, int64_t rows, int64_t columns, int64_t from) {
    const View<uint8_t> codes = tensors.tensor<uint8_t>({rows, columns});
    for (int64_t r = 0; r < std::min<int64_t>(rows, 32); ++r) codes.row(r)[from + r] = 0x38;
    const View<float> scales = tensors.tensor<float>({blocks_of(rows), blocks_of(columns)});
    std::fill_n(scales.data, scales.elements(), 1.0f);
    DenseMatrix out;
    out.rows = rows, out.columns = columns, out.codes = codes, out.scales = scales;
    return out;
  }
  static Fp4Matrix fp4(RandomTensors& tensors, int64_t rows, int64_t columns, int64_t from) {
    const View<uint8_t> codes = tensors.tensor<uint8_t>({rows, columns / 2});
    for (int64_t r = 0; r < std::min<int64_t>(rows, 32); ++r)
      codes.row(r)[(from + r) / 2] = (from + r) % 2 ? 0x20 : 0x02;
    const View<uint8_t> scales = tensors.tensor<uint8_t>({rows, columns / 32});
    std::fill_n(scales.data, scales.elements(), uint8_t{127});
    Fp4Matrix out;
    out.rows = rows, out.columns = columns, out.codes = codes, out.scales = scales;
    return out;
  }
};

float clamped_product(float gate, float up) {
  const float g = std::min(gate, 10.0f), u = std::clamp(up, -10.0f, 10.0f);
  return round_to_bf16(g / (1 + std::exp(-g)) * u);
}

// The gate is clamped from above only, up on both sides, before silu(g) * u, in routed and shared
// experts alike. Inputs are FP8 values in their own groups, so that they pass unchanged.
TEST(FieldFaults, SwiGluClampsTheGateFromAboveOnly) {
  const float gates[] = {-48, -10.5f, 9.5f, 11, 80}, ups[] = {-80, -11, 0, 11, 80};
  const auto fp8_of = [](float value) {
    return round_to_bf16(e4m3_to_float(float_to_e4m3(value)));
  };
  on_all_queues([&](auto& queue) {
    for (const float gate : gates)
      for (const float up : ups)
        for (const bool routed : {false, true}) {
          RandomTensors tensors(0);
          const View<bf16> x = tensors.tensor<bf16>({1, 64});
          x.data[0] = to_bf16(fp8_of(gate));
          x.data[32] = to_bf16(fp8_of(up));
          const View<ExpertMatrices> experts = tensors.tensor<ExpertMatrices>({1});
          experts.data[0] = {PickingExpert::fp4(tensors, 32, 64, 0),
                             PickingExpert::fp4(tensors, 64, 32, 0),
                             PickingExpert::fp4(tensors, 32, 64, 32)};
          SharedExpertMatrices shared{PickingExpert::fp8(tensors, 32, 64, 0),
                                      PickingExpert::fp8(tensors, 64, 32, 0),
                                      PickingExpert::fp8(tensors, 32, 64, 32)};
          const View<int32_t> ids = tensors.tensor<int32_t>({1, 1});
          const View<float> weights = tensors.tensor<float>({1, 1});
          weights.data[0] = routed ? 1.0f : 0.0f;
          if (routed) {
            const View<uint8_t> silent = tensors.tensor<uint8_t>({64, 32});
            shared.w2.codes = silent;
          }
          const View<bf16> y = tensors.tensor<bf16>({1, 64});
          moe_experts(queue, MoeExpertsArgs{.x = x,
                                            .ids = ids,
                                            .weights = weights,
                                            .experts = {experts.data, 1},
                                            .shared = shared,
                                            .limit = 10,
                                            .y = y});
          float hidden = clamped_product(fp8_of(gate), fp8_of(up));
          // w2's input is quantized alone in its group.
          std::vector<float> group(32);
          group[0] = hidden;
          std::vector<uint8_t> row(window_row_bytes(32));
          quantize_window_row(group.data(), 32, row.data());
          dequantize_window_row(row.data(), 32, group.data());
          EXPECT_EQ(to_float(y.data[0]), group[0])
              << (routed ? "routed" : "shared") << ", gate " << gate << ", up " << up;
        }
  });
}

// What one head likes strongly another may outvote; ReLU comes before the weighted sum.
TEST(FieldFaults, IndexerScoresEqualTheScalarLoop) {
  constexpr int64_t kRows = 40, kHeads = 2, kWidth = 32, kTopK = 4;
  for (const int64_t ratio : {1, 2}) {
    RandomTensors tensors(11);
    const PagedRows<uint8_t> keys = tensors.index_keys(1, 5, 8, kWidth);
    const View<bf16> q = tensors.bf16s({kRows, kHeads, kWidth});
    const View<bf16> weights = tensors.bf16s({kRows, kHeads});
    for (int64_t t = 0; t < kRows; ++t) weights.row(t)[1] = to_bf16(t % 3 ? 1.0f : -30.0f);
    const View<const float> frequencies = tensors.tensor<float>({0});
    const auto key_at = [&](int64_t j) {
      std::vector<float> key(kWidth);
      dequantize_index_row(keys.row(0, j), kWidth, key.data());
      return key;
    };
    const auto expected = [&](int64_t t) {
      std::vector<std::pair<float, int32_t>> scored;
      for (int64_t j = 0; j < (t + 1) / ratio; ++j) {
        float score = 0;
        for (int64_t h = 0; h < kHeads; ++h) {
          std::vector<float> iq(kWidth);
          std::vector<uint8_t> packed(index_key_row_bytes(kWidth));
          for (int64_t i = 0; i < kWidth; ++i) iq[i] = to_float(q.row(t)[h * kWidth + i]);
          quantize_index_row(iq.data(), kWidth, packed.data());
          dequantize_index_row(packed.data(), kWidth, iq.data());
          double sum = 0;
          const std::vector<float> key = key_at(j);
          for (int64_t i = 0; i < kWidth; ++i) sum += double{iq[i]} * key[i];
          score += to_float(weights.row(t)[h]) * std::max(static_cast<float>(sum), 0.0f);
        }
        scored.push_back({-score, static_cast<int32_t>(j)});
      }
      std::sort(scored.begin(), scored.end());
      std::vector<int32_t> out;
      for (size_t i = 0; i < std::min<size_t>(scored.size(), kTopK); ++i)
        out.push_back(scored[i].second);
      std::sort(out.begin(), out.end());
      out.resize(kTopK, -1);
      return out;
    };
    on_all_queues([&](auto& queue) {
      for (const int64_t chunk : {40, 7, 1})
        for (int64_t start = 0; start < kRows; start += chunk) {
          const int64_t count = std::min(chunk, kRows - start);
          const View<int32_t> chosen = tensors.tensor<int32_t>({count, kTopK});
          index_select(
              queue, IndexSelectArgs{.rows = tensors.step({{.slot = 0,
                                                            .first = static_cast<int32_t>(start),
                                                            .count = static_cast<int32_t>(count)}}),
                                     .ratio = ratio,
                                     .q = {q.row(start), {count, kHeads, kWidth}},
                                     .weights = {weights.row(start), {count, kHeads}},
                                     .weight_scale = 1,
                                     .frequencies = frequencies,
                                     .keys = {keys.rows, keys.table},
                                     .chosen = chosen});
          for (int64_t i = 0; i < count; ++i)
            EXPECT_EQ(std::vector<int32_t>(chosen.row(i), chosen.row(i) + kTopK),
                      expected(start + i))
                << "ratio " << ratio << ", chunk " << chunk << ", token " << start + i;
        }
    });
  }
}

// Row ids do not depend on how a sequence is cut into steps, also with a second one beside it.
TEST(FieldFaults, EngramRowsAreTheSameForEveryCut) {
  constexpr int64_t kTokens = 23, kLayers = 2, kLargest = 4, kColumns = 9;
  RandomTensors constants(5);
  const auto multipliers = constants.integers<int64_t>({kLayers, kLargest}, 1, int64_t{1} << 46);
  const auto primes = constants.integers<int64_t>({kLayers, kColumns}, 1000, 2000);
  const auto offsets = constants.integers<int64_t>({kLayers, kColumns}, 0, 10000);
  const auto map = constants.integers({100}, 0, 99091);
  const auto run_in_steps = [&](auto& queue, const std::vector<int64_t>& steps) {
    RandomTensors tensors(1);
    PagedRows<int32_t> classes;
    classes.rows = tensors.integers({8, 8, 1}, 0, 99091);
    classes.table = tensors.page_table(2, 4);
    std::vector<int64_t> out(2 * kTokens * kLayers * kColumns);
    int64_t at = 0;
    for (const int64_t count : steps) {
      const auto first = static_cast<int32_t>(at), length = static_cast<int32_t>(count);
      const View<int32_t> ids = tensors.tensor<int32_t>({2 * count});
      const View<int32_t> image = tensors.tensor<int32_t>({2 * count});
      std::fill_n(image.data, 2 * count, -1);
      for (int64_t i = 0; i < count; ++i) {
        ids.data[i] = static_cast<int32_t>(at + i);
        ids.data[count + i] = static_cast<int32_t>(99 - at - i);
      }
      const View<int64_t> rows = tensors.tensor<int64_t>({2 * count, kLayers, kColumns});
      engram_hash(queue,
                  EngramHashArgs{.rows = tensors.step({{0, first, length}, {1, first, length}}),
                                 .ids = ids,
                                 .image_index = image,
                                 .token_map = map,
                                 .pad_class = 2,
                                 .multipliers = multipliers,
                                 .primes = primes,
                                 .offsets = offsets,
                                 .classes = classes,
                                 .table_rows = rows});
      for (int64_t sequence = 0; sequence < 2; ++sequence)
        std::copy_n(rows.row(sequence * count), count * rows.stride(),
                    &out[(sequence * kTokens + at) * rows.stride()]);
      at += count;
    }
    return out;
  };
  on_all_queues([&](auto& queue) {
    const std::vector<int64_t> whole = run_in_steps(queue, {kTokens});
    for (int64_t cut = 1; cut < kTokens; ++cut)
      EXPECT_EQ(run_in_steps(queue, {cut, kTokens - cut}), whole) << "cut at " << cut;
    EXPECT_EQ(run_in_steps(queue, std::vector<int64_t>(kTokens, 1)), whole);
  });
}

}  // namespace
}  // namespace cachalot
