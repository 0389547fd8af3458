// Products with FP8 weights on shapes of the released model: linear against the reference; a
// token's result is the same bits in every company; the quantizer byte for byte.
#include "backend/cuda/dense_fp8.h"

#include <algorithm>
#include <cmath>

#include "on_gpu.h"
#include "tensor/block_quantizers.h"

namespace cachalot {
namespace {

struct LinearShape {
  int64_t out, in;
  bool norm = false;
};

LinearArgs linear_args(RandomTensors& random, const LinearShape& shape, int64_t tokens) {
  LinearArgs args{.x = random.bf16s({tokens, shape.in}),
                  .weight = random.fp8_matrix(shape.out, shape.in),
                  .norm_eps = 1e-6f,
                  .y = random.tensor<bf16>({tokens, shape.out})};
  if (shape.norm) args.norm = random.bf16s({shape.out}, 0.1f, 1);
  return args;
}

TEST(DenseFp8, AgreesOnReleasedShapes) {
  for (const LinearShape& shape : {LinearShape{1280, 5120, true},
                                   {512, 5120, true},
                                   {32768, 1280},
                                   {5120, 8192},
                                   {4096, 1280},
                                   {2304, 5120},
                                   {5120, 2304}}) {
    SCOPED_TRACE(fmt::format("[{}, {}]", shape.out, shape.in));
    RandomTensors random(1);
    CACHALOT_EXPECT_GPU_AGREES(linear, linear_args(random, shape, 2));
  }
}

// The test model's widths; rows that end inside a tile; columns that are no whole steps.
TEST(DenseFp8, AgreesOnSmallAndOddShapes) {
  for (const LinearShape& shape : {LinearShape{256, 256, true},
                                   {512, 256},
                                   {96, 256},
                                   {256, 96},
                                   {8, 128},
                                   {200, 384, true},
                                   {72, 1280},
                                   {129, 512, true},
                                   {320, 160}}) {
    for (const int64_t tokens : {1, 17, 33, 150, 391}) {
      SCOPED_TRACE(fmt::format("[{}, {}], {} tokens", shape.out, shape.in, tokens));
      RandomTensors random(2);
      CACHALOT_EXPECT_GPU_AGREES(linear, linear_args(random, shape, tokens));
    }
  }
}

TEST(DenseFp8, AddsABiasAndGivesUnroundedSums) {
  RandomTensors random(3);
  for (const int64_t in : {384, 640}) {  // one chunk, two
    for (const int64_t tokens : {3, 40, 140}) {
      SCOPED_TRACE(fmt::format("{} columns, {} tokens", in, tokens));
      LinearArgs args = linear_args(random, {264, in, true}, tokens);
      args.bias = random.bf16s({264}, 30);
      CACHALOT_EXPECT_GPU_AGREES(linear, args);
      args.bias = {};
      args.norm = {};
      args.y = {};
      args.y_f32 = random.tensor<float>({tokens, 264});
      CACHALOT_EXPECT_GPU_AGREES(linear, args);
    }
  }
}

TEST(DenseFp8, GivesATokenTheSameBitsInEveryCompany) {
  constexpr int64_t kTokens = 300;
  for (const LinearShape& shape :
       {LinearShape{1280, 5120, true}, {512, 5120, true}, {4096, 1280}, {5120, 2304}, {136, 384}}) {
    RandomTensors random(4);
    const LinearArgs whole = linear_args(random, shape, kTokens);
    mirrored::Queue queue(gpu_queue());
    linear(queue, whole);
    for (const int64_t count : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 257}) {
      for (const int64_t first : {int64_t{0}, kTokens / 3, kTokens - count}) {
        if (first + count > kTokens) continue;
        LinearArgs part = whole;
        part.x = {whole.x.row(first), {count, shape.in}};
        part.y = random.tensor<bf16>({count, shape.out});
        linear(queue, part);
        EXPECT_EQ(std::memcmp(part.y.data, whole.y.row(first), static_cast<size_t>(part.y.bytes())),
                  0)
            << fmt::format("[{}, {}]: {} tokens from {}", shape.out, shape.in, count, first);
      }
    }
  }
}

// Blocks that walk several tiles, in both of their sizes, with and without chunks.
TEST(DenseFp8, GivesManyTokensTheBitsOfFew) {
  struct Case {
    LinearShape shape;
    int64_t tokens;
  };
  for (const auto& [shape, tokens] :
       {Case{{4096, 1280}, 2304}, {{4096, 1280}, 3000}, {{2048, 256}, 3000}, {{2048, 256}, 5000}}) {
    RandomTensors random(8);
    const LinearArgs whole = linear_args(random, shape, tokens);
    mirrored::Queue queue(gpu_queue());
    linear(queue, whole);
    for (int64_t first = 0; first < tokens; first += 64) {
      LinearArgs part = whole;
      const int64_t count = std::min<int64_t>(64, tokens - first);
      part.x = {whole.x.row(first), {count, shape.in}};
      part.y = random.tensor<bf16>({count, shape.out});
      linear(queue, part);
      EXPECT_EQ(std::memcmp(part.y.data, whole.y.row(first), static_cast<size_t>(part.y.bytes())),
                0)
          << fmt::format("[{}, {}]: {} of {} tokens from {}", shape.out, shape.in, count, tokens,
                         first);
    }
  }
}

// Rows that come quantized have the sums of those that linear() quantizes.
TEST(DenseFp8, MultipliesQuantizedRowsAlike) {
  constexpr int64_t kOut = 264, kIn = 1152;
  const MemorySpace& memory = cuda::device_memory();
  for (const int64_t tokens : {1, 8, 20, 100}) {
    RandomTensors random(7);
    const mirrored::OnDevice<LinearArgs> mirror(linear_args(random, {kOut, kIn}, tokens));
    const LinearArgs& args = mirror.args();
    linear(gpu_queue(), args);
    std::unique_ptr<void, ReleaseTo> other(memory.allocate(args.y.bytes()), {&memory});
    cuda::Scratch scratch(gpu_queue());
    cuda::multiply_fp8(gpu_queue(), args.weight,
                       cuda::quantize_rows(gpu_queue(), scratch, args.x.data, tokens, kIn),
                       {.y = static_cast<bf16*>(other.get())});
    gpu_queue().wait();
    std::vector<bf16> a(tokens * kOut), b(tokens * kOut);
    memory.copy(a.data(), args.y.data, args.y.bytes());
    memory.copy(b.data(), other.get(), args.y.bytes());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)), 0) << tokens;
  }
}

// The sum of a row with a NaN or an infinity is none; its neighbours' are as ever.
TEST(DenseFp8, KeepsAnInvalidTokenToItself) {
  for (const int64_t tokens : {5, 90}) {
    RandomTensors random(5);
    const LinearArgs args = linear_args(random, {128, 256}, tokens);
    auto* x = const_cast<bf16*>(args.x.data);
    mirrored::Queue queue(gpu_queue());
    linear(queue, args);
    const std::vector<bf16> before(args.y.data, args.y.data + args.y.elements());
    x[1 * 256 + 40] = to_bf16(std::nanf(""));
    x[3 * 256 + 200] = to_bf16(INFINITY);
    linear(queue, args);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < 128; ++i) {
        const bf16 y = args.y.row(t)[i];
        if (t == 1 || t == 3) {
          EXPECT_TRUE(std::isnan(to_float(y)));
        } else {
          EXPECT_EQ(y.bits, before[static_cast<size_t>(t * 128 + i)].bits);
        }
      }
  }
}

TEST(QuantizeRows, GivesTheBytesOfTheDefinition) {
  constexpr int64_t kRows = 37, kColumns = 1280;
  RandomTensors random(6);
  const View<bf16> x = random.bf16s({kRows, kColumns});
  // Every exponent, ties, values below the least scale, and groups of zeros.
  std::uniform_int_distribution<int> exponent(-126, 126), bits(0, 0xFFFF);
  for (int64_t row = 1; row < kRows; ++row)
    for (int64_t i = 0; i < kColumns; ++i) {
      bf16& value = x.row(row)[i];
      if (row < 8)
        value = to_bf16(std::ldexp(to_float(value), exponent(random.engine()) / 8));
      else if (row < 20)
        value = {static_cast<uint16_t>(bits(random.engine()))};
      else if (row < 24)
        value = to_bf16(static_cast<float>(i % 449) / 2 * (i % 2 ? 1 : -1));
      else if (row < 26)
        value = to_bf16(row % 2 ? -0.0f : 0.0f);
      if (!std::isfinite(to_float(value))) value = to_bf16(1);
    }
  const MemorySpace& memory = cuda::device_memory();
  std::unique_ptr<void, ReleaseTo> copy(memory.allocate(x.bytes()), {&memory});
  memory.copy(copy.get(), x.data, x.bytes());
  cuda::Scratch scratch(gpu_queue());
  const cuda::QuantizedRows quantized = cuda::quantize_rows(
      gpu_queue(), scratch, static_cast<const bf16*>(copy.get()), kRows, kColumns);
  gpu_queue().wait();
  std::vector<uint8_t> codes(kRows * kColumns);
  std::vector<uint8_t> scales(kColumns / 128 * quantized.scale_stride * 4);
  memory.copy(codes.data(), quantized.codes, codes.size());
  memory.copy(scales.data(), quantized.scales, scales.size());
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<float> values(kColumns);
    for (int64_t i = 0; i < kColumns; ++i) values[i] = to_float(x.row(row)[i]);
    std::vector<uint8_t> expected(kColumns), expected_scales(kColumns / 32);
    quantize_fp8(values.data(), kColumns, expected.data(), expected_scales.data());
    int64_t differing = 0;
    for (int64_t i = 0; i < kColumns; ++i) differing += codes[row * kColumns + i] != expected[i];
    for (int64_t group = 0; group < kColumns / 32; ++group)
      differing += scales[(group / 4 * quantized.scale_stride + row) * 4 + group % 4] !=
                   expected_scales[group];
    EXPECT_EQ(differing, 0) << "row " << row;
  }
}

}  // namespace
}  // namespace cachalot
