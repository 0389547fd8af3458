// Engram's operations at the released model's shapes.
#include <utility>

#include "random_tensors.h"
#include "token_slices.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120, kCopies = 4, kColumns = 24, kWidth = 256, kTableRows = 5000;

EngramMixArgs mix_args(RandomTensors& random, int64_t tokens, int64_t dim = kDim) {
  return {.kv = random.bf16s({tokens, (kCopies + 1) * dim}),
          .q_weight = random.bf16s({kCopies, dim}, 0.2f, 1),
          .k_weight = random.bf16s({kCopies, dim}, 0.2f, 1),
          .image_index = random.integers({tokens}, -1, 0),
          .norm_eps = 1e-20f,
          .stream = random.bf16s({tokens, kCopies, dim})};
}

TEST(GpuEngramMix, AgreesAtTheReleasedShape) {
  RandomTensors random(1);
  CACHALOT_EXPECT_GPU_AGREES(engram_mix, mix_args(random, 9));
}

TEST(GpuEngramMix, AgreesOnRowsWiderThanABlock) {
  RandomTensors random(2);
  CACHALOT_EXPECT_GPU_AGREES(engram_mix, mix_args(random, 2, 20000));
}

TEST(GpuEngramMix, ATokenAloneIsWhatItIsInAStep) {
  RandomTensors first(3), second(3);
  bool again = false;
  expect_tokens_independent(
      150, [&] { return mix_args(std::exchange(again, true) ? second : first, 150); },
      [](mirrored::Queue& queue, const EngramMixArgs& args) { engram_mix(queue, args); });
}

EngramGatherArgs gather_args(RandomTensors& random, int64_t tokens) {
  const View<uint8_t> scales = random.tensor<uint8_t>({kTableRows, kWidth / kScaleBlock});
  for (int64_t i = 0; i < scales.elements(); ++i) scales.data[i] = static_cast<uint8_t>(i % 255);
  return {.table_rows = random.integers<int64_t>({tokens, 2, kColumns}, 0, kTableRows - 1),
          .layer = 1,
          .codes = random.e4m3_codes({kTableRows, kWidth}),
          .scales = scales,
          .values = random.tensor<bf16>({tokens, kColumns * kWidth})};
}

TEST(GpuEngramGather, AgreesAtTheReleasedShape) {
  for (const int64_t tokens : {1, 100}) {
    RandomTensors random(4);
    CACHALOT_EXPECT_GPU_AGREES(engram_gather, gather_args(random, tokens));
  }
}

// The released tables are larger than the device's memory: they may lie in the host's.
TEST(GpuEngramGather, ReadsATableInPinnedMemory) {
  RandomTensors random(5);
  EngramGatherArgs args = gather_args(random, 20);
  CACHALOT_EXPECT_GPU_AGREES(engram_gather, args);
  const View<bf16> expected = args.values;

  const auto moved = [](auto& view, const MemorySpace& memory) {
    std::unique_ptr<void, ReleaseTo> copy(memory.allocate(view.bytes()), {&memory});
    memory.copy(copy.get(), view.data, view.bytes());
    view.data = static_cast<decltype(view.data)>(copy.get());
    return copy;
  };
  const View<bf16> values = random.tensor<bf16>(expected.shape);
  args.values = values;
  const auto codes = moved(args.codes, cuda::pinned_memory());
  const auto scales = moved(args.scales, cuda::pinned_memory());
  const auto rows = moved(args.table_rows, cuda::device_memory());
  const auto out = moved(args.values, cuda::device_memory());
  engram_gather(gpu_queue(), args);
  gpu_queue().wait();
  cuda::device_memory().copy(values.data, out.get(), values.bytes());
  EXPECT_EQ(std::memcmp(values.data, expected.data, values.bytes()), 0);
}

// Three n-gram sizes, two parts of sequences, images among the text, and multipliers of the
// released magnitude.
TEST(GpuEngramHash, AgreesAtTheReleasedShape) {
  RandomTensors random(6);
  const int64_t layers = 2, largest = 4, pages = 8, page_tokens = 128;
  const StepRows rows = random.step({{.slot = 1, .first = 250, .count = 300},
                                     {.slot = 0, .first = 0, .count = 100},
                                     {.slot = 2, .first = 1, .count = 1}});
  const int64_t tokens = rows.tokens();
  const View<int32_t> images = random.integers({tokens}, -20, 0);
  for (int64_t i = 0; i < tokens; ++i) images.data[i] = std::max(images.data[i], -1);
  CACHALOT_EXPECT_GPU_AGREES(
      engram_hash,
      EngramHashArgs{.rows = rows,
                     .ids = random.integers({tokens}, 0, 129279),
                     .image_index = images,
                     .token_map = random.integers({129280}, 0, 99999),
                     .pad_class = 2,
                     .multipliers = random.integers<int64_t>({layers, largest}, 1, 1ll << 46),
                     .primes = random.integers<int64_t>({layers, kColumns}, 1 << 24, 1 << 25),
                     .offsets = random.integers<int64_t>({layers, kColumns}, 0, 1ll << 34),
                     .classes = {random.integers({3 * pages, page_tokens, 1}, -1, 99999),
                                 random.page_table(3, pages)},
                     .table_rows = random.tensor<int64_t>({tokens, layers, kColumns})});
}

}  // namespace
}  // namespace cachalot
