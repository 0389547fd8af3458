// The residual stream's operations at the released model's shapes.
#include <utility>

#include "random_tensors.h"
#include "token_slices.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120, kCopies = 4, kMixes = (2 + kCopies) * kCopies;

HyperCollapseArgs collapse_args(RandomTensors& random, int64_t tokens, bool coefficients = true) {
  HyperCollapseArgs args{.stream = random.bf16s({tokens, kCopies, kDim}),
                         .pre_in = random.floats({tokens, kCopies}, 0.2f, 0.5f),
                         .norm = random.bf16s({kDim}, 0.1f, 1),
                         .norm_eps = 1e-20f,
                         .hc_eps = 1e-6f,
                         .sinkhorn_iterations = 20,
                         .x = random.tensor<bf16>({tokens, kDim})};
  if (!coefficients) return args;
  args.fn = random.floats({kMixes, kCopies * kDim}, 0.01f);
  args.base = random.floats({kMixes});
  args.scale = random.floats({3}, 0.1f, 1);
  args.pre_out = random.tensor<float>({tokens, kCopies});
  args.post = random.tensor<float>({tokens, kCopies});
  args.comb = random.tensor<float>({tokens, kCopies, kCopies});
  return args;
}

TEST(GpuHyperCollapse, AgreesAtTheReleasedShape) {
  for (const int64_t tokens : {1, 3, 9, 40}) {
    SCOPED_TRACE(tokens);
    RandomTensors random(static_cast<uint32_t>(tokens));
    CACHALOT_EXPECT_GPU_AGREES(hyper_collapse, collapse_args(random, tokens));
  }
}

TEST(GpuHyperCollapse, AgreesWithoutCoefficientsOrNorm) {
  RandomTensors random(5);
  HyperCollapseArgs args = collapse_args(random, 3, false);
  CACHALOT_EXPECT_GPU_AGREES(hyper_collapse, args);
  args.norm = {};
  CACHALOT_EXPECT_GPU_AGREES(hyper_collapse, args);
}

// Logits far apart: Sinkhorn then converges slowly, and rows of comb have entries near 0.
TEST(GpuHyperCollapse, AgreesWhenTheMixIsNearlyAPermutation) {
  RandomTensors random(6);
  HyperCollapseArgs args = collapse_args(random, 20);
  args.base = random.floats({kMixes}, 6);
  args.scale = random.floats({3}, 0.1f, 4);
  CACHALOT_EXPECT_GPU_AGREES(hyper_collapse, args);
}

TEST(GpuHyperCollapse, AgreesOnZeros) {
  RandomTensors random(7);
  HyperCollapseArgs args = collapse_args(random, 2);
  args.stream = random.tensor<bf16>({2, kCopies, kDim});
  CACHALOT_EXPECT_GPU_AGREES(hyper_collapse, args);
}

TEST(GpuHyperCollapse, ATokenAloneIsWhatItIsInAStep) {
  for (const int64_t tokens : {100, 200, 300}) {
    RandomTensors first(8), second(8);
    bool again = false;
    expect_tokens_independent(
        tokens, [&] { return collapse_args(std::exchange(again, true) ? second : first, tokens); },
        [](mirrored::Queue& queue, const HyperCollapseArgs& args) { hyper_collapse(queue, args); });
  }
}

HyperExpandArgs expand_args(RandomTensors& random, int64_t tokens) {
  return {.y = random.bf16s({tokens, kDim}),
          .post = random.floats({tokens, kCopies}, 0.3f, 1),
          .comb = random.floats({tokens, kCopies, kCopies}, 0.1f, 0.25f),
          .stream = random.bf16s({tokens, kCopies, kDim})};
}

TEST(GpuHyperExpand, AgreesAtTheReleasedShape) {
  for (const int64_t tokens : {1, 40}) {
    RandomTensors random(static_cast<uint32_t>(tokens));
    CACHALOT_EXPECT_GPU_AGREES(hyper_expand, expand_args(random, tokens));
  }
}

TEST(GpuHyperExpand, ATokenAloneIsWhatItIsInAStep) {
  RandomTensors first(9), second(9);
  bool again = false;
  expect_tokens_independent(
      150, [&] { return expand_args(std::exchange(again, true) ? second : first, 150); },
      [](mirrored::Queue& queue, const HyperExpandArgs& args) { hyper_expand(queue, args); });
}

TEST(GpuDraftTap, AgreesAtTheReleasedShape) {
  RandomTensors random(10);
  CACHALOT_EXPECT_GPU_AGREES(draft_tap, DraftTapArgs{.stream = random.bf16s({7, kCopies, kDim}),
                                                     .target = 2,
                                                     .taps = random.bf16s({7, 3, kDim})});
}

}  // namespace
}  // namespace cachalot
