// golden/numerics.safetensors: formats and block quantizers exactly, rotary frequencies within 4
// units in the last place and hyper-connection coefficients within 32, as math libraries differ.
#include <bit>
#include <cstdlib>

#include "golden_tensors.h"
#include "model/rotary.h"
#include "ops/test_queues.h"
#include "tensor/block_quantizers.h"
#include "tensor/buffer.h"

namespace cachalot {
namespace {

const GoldenTensors& golden() {
  static const GoldenTensors tensors("numerics.safetensors");
  return tensors;
}

// Position on the number line in units in the last place.
int64_t line_position(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value);
  return bits >= 0 ? bits : int64_t{INT32_MIN} - bits;
}

int64_t units_apart(float a, float b) { return std::abs(line_position(a) - line_position(b)); }

void expect_within(const std::vector<float>& found, const std::string& name, int64_t units) {
  const std::vector<float> expected = golden().values<float>(name);
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(units_apart(found[i], expected[i]), units)
        << name << "[" << i << "] is " << found[i] << ", expected " << expected[i];
}

TEST(GoldenNumerics, FormatsRoundExactly) {
  const auto values = golden().values<float>("values");
  const auto bf16s = golden().values<float>("bf16"), e4m3 = golden().values<float>("e4m3");
  const auto e2m1 = golden().values<float>("e2m1");
  const auto e4m3_bytes = golden().values<uint8_t>("e4m3_bytes");
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(round_to_bf16(values[i])), std::bit_cast<uint32_t>(bf16s[i]))
        << values[i];
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(values[i])), e4m3[i]) << values[i];
    EXPECT_EQ(float_to_e4m3(values[i]), e4m3_bytes[i]) << values[i];
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(values[i])), e2m1[i]) << values[i];
  }
}

// quantize(x, width, row), dequantize(row, width, x)
template <class Quantize, class Dequantize>
void expect_exact_rows(const std::string& name, Quantize quantize, Dequantize dequantize) {
  auto rows = golden().values<float>("rows");
  const int64_t width = golden().shape("rows")[1];
  std::vector<uint8_t> packed(2 * width);
  for (size_t at = 0; at < rows.size(); at += width) {
    quantize(&rows[at], width, packed.data());
    dequantize(packed.data(), width, &rows[at]);
  }
  EXPECT_EQ(rows, golden().values<float>(name)) << name;
}

TEST(GoldenNumerics, BlockQuantizersAreExact) {
  expect_exact_rows("fp8_blocks32", quantize_window_row, dequantize_window_row);
  expect_exact_rows("fp4_blocks32_e8m0", quantize_index_row, dequantize_index_row);
  expect_exact_rows("fp4_blocks16_e4m3", quantize_latent_row, dequantize_latent_row);
}

TEST(GoldenNumerics, RotaryFrequenciesAgree) {
  expect_within(rope_frequencies(64, 10000, 0, 16, 32, 1), "rope.plain", 4);
  expect_within(rope_frequencies(64, 160000, 65536, 16, 32, 1), "rope.yarn", 4);
}

TEST(GoldenNumerics, HyperConnectionCoefficientsAgreeOnEveryQueue) {
  const auto stream_values = golden().values<float>("hc.stream");
  Buffer<bf16> stream(golden().shape("hc.stream"));
  for (size_t i = 0; i < stream_values.size(); ++i) {
    stream.values()[i] = to_bf16(stream_values[i]);
    ASSERT_EQ(to_float(stream.values()[i]), stream_values[i]);
  }
  const Buffer<float> fn(golden().shape("hc.fn"), golden().values<float>("hc.fn"));
  const Buffer<float> base(golden().shape("hc.base"), golden().values<float>("hc.base"));
  const Buffer<float> scale(golden().shape("hc.scale"), golden().values<float>("hc.scale"));
  const int64_t tokens = 16, copies = 4, dim = 64;
  const Buffer<float> pre_in({tokens, copies});
  on_all_queues([&](auto& queue) {
    Buffer<bf16> x({tokens, dim});
    Buffer<float> pre({tokens, copies}), post({tokens, copies}), comb({tokens, copies, copies});
    hyper_collapse(queue, HyperCollapseArgs{.stream = stream.view(),
                                            .pre_in = pre_in.view(),
                                            .fn = fn.view(),
                                            .base = base.view(),
                                            .scale = scale.view(),
                                            .norm_eps = 1e-20f,
                                            .hc_eps = 1e-6f,
                                            .sinkhorn_iterations = 20,
                                            .x = x.view(),
                                            .pre_out = pre.view(),
                                            .post = post.view(),
                                            .comb = comb.view()});
    expect_within(pre.values(), "hc.pre", 32);
    expect_within(post.values(), "hc.post", 32);
    expect_within(comb.values(), "hc.comb", 32);
  });
}

}  // namespace
}  // namespace cachalot
