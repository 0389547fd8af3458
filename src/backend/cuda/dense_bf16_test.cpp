// Products with BF16 inputs on shapes of the released model: linear with BF16 weights,
// grouped_linear, head. And that a token's result is the same bits in every company.
#include <algorithm>
#include <cmath>

#include "on_gpu.h"

namespace cachalot {
namespace {

struct LinearShape {
  int64_t out, in;
  bool bias = false, f32 = false, norm = false;
};

// compressor, index weights; the vision tower's; odd ones.
const LinearShape kLinearShapes[] = {
    {512, 5120, false, true},
    {32, 5120},
    {128, 512},
    {1024, 588, true},
    {3072, 1024, true},
    {1024, 1024, true},
    {5632, 1024},
    {1024, 2816},
    {5120, 5120, true},
    {77, 328, true, false, true},
    {512, 320, false, true},
    {65, 33},
};

LinearArgs linear_args(RandomTensors& random, const LinearShape& shape, int64_t tokens) {
  LinearArgs args{.x = random.bf16s({tokens, shape.in}),
                  .weight = random.bf16_matrix(shape.out, shape.in),
                  .norm_eps = 1e-6f};
  if (shape.bias) args.bias = random.bf16s({shape.out});
  if (shape.norm) args.norm = random.bf16s({shape.out}, 0.1f, 1);
  if (shape.f32) {
    args.y_f32 = random.tensor<float>({tokens, shape.out});
  } else {
    args.y = random.tensor<bf16>({tokens, shape.out});
  }
  return args;
}

TEST(DenseBf16, AgreesOnReleasedShapes) {
  for (const LinearShape& shape : kLinearShapes) {
    SCOPED_TRACE(fmt::format("[{}, {}]", shape.out, shape.in));
    RandomTensors random(1);
    const LinearArgs args = linear_args(random, shape, 3);
    CACHALOT_EXPECT_GPU_AGREES(linear, args);
  }
}

TEST(DenseBf16, AgreesWithManyTokens) {
  for (const int64_t tokens : {31, 129, 517}) {
    SCOPED_TRACE(fmt::format("{} tokens", tokens));
    RandomTensors random(2);
    const LinearArgs args = linear_args(random, {96, 704, true}, tokens);
    CACHALOT_EXPECT_GPU_AGREES(linear, args);
  }
}

// Bytes of row t of a tensor [tokens, ...].
template <class T>
std::vector<std::byte> row_bytes(View<T> view, int64_t t) {
  const auto* row = reinterpret_cast<const std::byte*>(view.row(t));
  return {row, row + static_cast<size_t>(view.stride()) * sizeof(T)};
}

// Runs the operation for the whole batch and for parts of it: results must be the same bits.
// part(first, count) makes the arguments of some of the batch's tokens, output(args) their results.
template <class Run, class Part, class Output>
void expect_same_in_any_company(int64_t tokens, Run run, Part part, Output output) {
  mirrored::Queue queue(gpu_queue());
  const auto whole = part(0, tokens);
  run(queue, whole);
  for (const int64_t count : {1, 2, 5, 8, 13, 16, 31, 64, 100, 128, 200}) {
    if (count >= tokens) break;
    for (const int64_t first : {int64_t{0}, tokens / 2, tokens - count}) {
      const int64_t taken = std::min(count, tokens - first);
      const auto some = part(first, taken);
      run(queue, some);
      for (int64_t t = 0; t < taken; ++t) {
        ASSERT_EQ(row_bytes(output(some), t), row_bytes(output(whole), first + t))
            << "token " << first + t << " of " << tokens << ", in a batch of " << taken;
      }
    }
  }
}

template <class T>
View<T> rows_of(View<T> view, int64_t first, int64_t count) {
  Shape shape = view.shape;
  if (shape.rank() == 2) shape = {count, shape[1]};
  if (shape.rank() == 3) shape = {count, shape[1], shape[2]};
  return {view.data + first * view.stride(), shape};
}

TEST(DenseBf16, TokensDoNotSeeTheirCompany) {
  for (const LinearShape& shape : kLinearShapes) {
    SCOPED_TRACE(fmt::format("[{}, {}]", shape.out, shape.in));
    constexpr int64_t kTokens = 300;
    RandomTensors random(3);
    const LinearArgs whole = linear_args(random, shape, kTokens);
    expect_same_in_any_company(
        kTokens, [](auto& queue, const LinearArgs& args) { linear(queue, args); },
        [&](int64_t first, int64_t count) {
          LinearArgs args = whole;
          args.x = rows_of(whole.x, first, count);
          if (shape.f32) args.y_f32 = random.tensor<float>({count, shape.out});
          if (!shape.f32) args.y = random.tensor<bf16>({count, shape.out});
          return args;
        },
        [&](const LinearArgs& args) {
          const auto* data = shape.f32 ? reinterpret_cast<const uint8_t*>(args.y_f32.data)
                                       : reinterpret_cast<const uint8_t*>(args.y.data);
          const int64_t width = shape.out * (shape.f32 ? 4 : 2);
          return View<const uint8_t>(data, {args.x.extent(0), width});
        });
  }
}

GroupedLinearArgs grouped_args(RandomTensors& random, int64_t tokens, int64_t groups, int64_t out,
                               int64_t in, bool fp8) {
  return {
      .x = random.bf16s({tokens, groups, in}),
      .weight = fp8 ? random.fp8_matrix(groups * out, in) : random.bf16_matrix(groups * out, in),
      .y = random.tensor<bf16>({tokens, groups, out})};
}

TEST(GroupedLinear, AgreesOnReleasedShapes) {
  RandomTensors random(4);
  const GroupedLinearArgs released = grouped_args(random, 2, 8, 1024, 4096, true);
  CACHALOT_EXPECT_GPU_AGREES(grouped_linear, released);
  const GroupedLinearArgs odd_steps = grouped_args(random, 5, 2, 128, 640, true);
  CACHALOT_EXPECT_GPU_AGREES(grouped_linear, odd_steps);
  for (const bool fp8 : {false, true}) {
    const GroupedLinearArgs small = grouped_args(random, 3, 4, 64, 128, fp8);
    CACHALOT_EXPECT_GPU_AGREES(grouped_linear, small);
    const GroupedLinearArgs many = grouped_args(random, 293, 3, 96, 160, fp8);
    CACHALOT_EXPECT_GPU_AGREES(grouped_linear, many);
  }
}

// Codes of all kinds under scales of all sizes: one channel of each token is 1, the others are 0,
// so that its product is a column of the weight.
TEST(GroupedLinear, ExpandsEveryCodeExactly) {
  constexpr int64_t kIn = 4096, kBlocks = kIn / kScaleBlock;
  RandomTensors random(5);
  const GroupedLinearArgs args = grouped_args(random, kBlocks, 1, 64, kIn, true);
  const auto codes = const_cast<uint8_t*>(args.weight.codes.data);
  for (int64_t i = 0; i < args.weight.codes.elements(); ++i) {
    const auto code = static_cast<uint8_t>(i % kIn / 16);
    codes[i] = (code & 0x7F) == 0x7F ? 0 : code;
  }
  const auto scales = const_cast<float*>(args.weight.scales.data);
  for (int64_t i = 0; i < 2 * kBlocks; ++i)
    scales[i] = std::ldexp(1.0f, static_cast<int>(i % 216) - 108);
  const auto x = const_cast<bf16*>(args.x.data);
  std::fill_n(x, args.x.elements(), bf16{});
  for (int64_t t = 0; t < kBlocks; ++t)
    x[t * kIn + t * kScaleBlock + t % kScaleBlock] = to_bf16(1.0f);
  CACHALOT_EXPECT_GPU_AGREES(grouped_linear, args);
}

// The same for few tokens, which have a kernel of their own: without and with scales that take two
// factors.
TEST(GroupedLinear, ExpandsCodesExactlyForFewTokens) {
  constexpr int64_t kIn = 512, kTokens = 8;
  for (const int largest : {6, 90}) {
    RandomTensors random(9);
    const GroupedLinearArgs args = grouped_args(random, kTokens, 2, 128, kIn, true);
    const auto codes = const_cast<uint8_t*>(args.weight.codes.data);
    for (int64_t i = 0; i < args.weight.codes.elements(); ++i) {
      const auto code = static_cast<uint8_t>(i * 7 + i / kIn * 13);
      codes[i] = (code & 0x7F) == 0x7F ? 0 : code;
    }
    const auto scales = const_cast<float*>(args.weight.scales.data);
    for (int64_t i = 0; i < args.weight.scales.elements(); ++i)
      scales[i] = std::ldexp(1.0f, largest - static_cast<int>(i * 5 % 97));
    const auto x = const_cast<bf16*>(args.x.data);
    std::fill_n(x, args.x.elements(), bf16{});
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t group = 0; group < 2; ++group)
        x[(t * 2 + group) * kIn + t * 64 + (t * 9 + group * 17) % 64] = to_bf16(1.0f);
    CACHALOT_EXPECT_GPU_AGREES(grouped_linear, args);
  }
}

// The released shape, one that is odd, and one whose rows are an odd number of steps.
TEST(GroupedLinear, TokensDoNotSeeTheirCompany) {
  struct Case {
    int64_t tokens, groups, out, in;
  };
  for (const Case& of : {Case{270, 8, 1024, 4096}, Case{270, 3, 96, 160}, Case{20, 2, 128, 640}}) {
    SCOPED_TRACE(fmt::format("{} x [{}, {}]", of.groups, of.out, of.in));
    RandomTensors random(6);
    const GroupedLinearArgs whole = grouped_args(random, of.tokens, of.groups, of.out, of.in, true);
    expect_same_in_any_company(
        of.tokens, [](auto& queue, const GroupedLinearArgs& args) { grouped_linear(queue, args); },
        [&](int64_t first, int64_t count) {
          return GroupedLinearArgs{.x = rows_of(whole.x, first, count),
                                   .weight = whole.weight,
                                   .y = random.tensor<bf16>({count, of.groups, of.out})};
        },
        [](const GroupedLinearArgs& args) { return args.y; });
  }
}

TEST(Head, AgreesOnReleasedWidth) {
  RandomTensors random(7);
  for (const int64_t vocab : {1024, 1111}) {
    const HeadArgs args{.x = random.bf16s({40, 5120}),
                        .rows = random.integers({20}, 0, 39),
                        .weight = random.bf16s({vocab, 5120}),
                        .logits = random.tensor<float>({20, vocab})};
    CACHALOT_EXPECT_GPU_AGREES(head, args);
  }
}

TEST(Head, RowsDoNotSeeTheirCompany) {
  RandomTensors random(8);
  constexpr int64_t kRows = 150, kVocab = 2000, kDim = 1280;
  const HeadArgs whole{.x = random.bf16s({kRows, kDim}),
                       .rows = random.integers({kRows}, 0, static_cast<int32_t>(kRows - 1)),
                       .weight = random.bf16s({kVocab, kDim}),
                       .logits = {}};
  expect_same_in_any_company(
      kRows, [](auto& queue, const HeadArgs& args) { head(queue, args); },
      [&](int64_t first, int64_t count) {
        HeadArgs args = whole;
        args.rows = {whole.rows.data + first, {count}};
        args.logits = random.tensor<float>({count, kVocab});
        return args;
      },
      [](const HeadArgs& args) { return args.logits; });
}

}  // namespace
}  // namespace cachalot
