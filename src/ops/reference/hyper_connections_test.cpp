#include <gtest/gtest.h>

#include "ops/reference/queue.h"
#include "tensor/buffer.h"

namespace cachalot {
namespace {

Buffer<bf16> bf16s(Shape shape, const std::vector<float>& values) {
  Buffer<bf16> out(shape);
  for (size_t i = 0; i < values.size(); ++i) out.values()[i] = to_bf16(values[i]);
  return out;
}

std::vector<float> floats(const Buffer<bf16>& buffer) {
  std::vector<float> out;
  for (const bf16 value : buffer.values()) out.push_back(to_float(value));
  return out;
}

TEST(ReferenceHyperCollapse, MixesTheCopiesAndNormalizes) {
  reference::Queue queue{Arena(0)};
  const Buffer<bf16> stream = bf16s({1, 2, 2}, {1, 2, 4, 8});
  const Buffer<float> pre({1, 2}, {1, 0.5f});
  const Buffer<bf16> norm = bf16s({2}, {1, 2});
  Buffer<bf16> x({1, 2});
  hyper_collapse(queue,
                 HyperCollapseArgs{.stream = stream.view(), .pre_in = pre.view(), .x = x.view()});
  EXPECT_EQ(floats(x), (std::vector<float>{3, 6}));
  // mean square 22.5: 3 / 4.7434 = 0.63246, 2 * 6 / 4.7434 = 2.52982, rounded to BF16
  hyper_collapse(
      queue,
      HyperCollapseArgs{
          .stream = stream.view(), .pre_in = pre.view(), .norm = norm.view(), .x = x.view()});
  EXPECT_EQ(floats(x), (std::vector<float>{0.6328125f, 2.53125f}));
}

TEST(ReferenceHyperCollapse, MakesCombinationsWhoseColumnsSumToOne) {
  reference::Queue queue{Arena(0)};
  const Buffer<bf16> stream = bf16s({1, 2, 2}, {1, -2, 3, 0.5f});
  Buffer<float> fn({8, 4});
  for (size_t i = 0; i < 32; ++i) fn.values()[i] = static_cast<float>(i % 7) * 0.25f - 0.5f;
  const Buffer<float> base({8}), scale({3}, {1, 1, 1}), pre_in({1, 2}, {1, 0});
  Buffer<bf16> x({1, 2});
  Buffer<float> pre({1, 2}), post({1, 2}), comb({1, 2, 2});
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
  const std::vector<float>& c = comb.values();
  EXPECT_NEAR(c[0] + c[2], 1, 1e-5);
  EXPECT_NEAR(c[1] + c[3], 1, 1e-5);
  EXPECT_NEAR(c[0] + c[1], 1, 1e-3);
  for (const float value : post.values()) EXPECT_TRUE(value > 0 && value < 2);
  for (const float value : pre.values()) EXPECT_TRUE(value > 0 && value < 1.001f);
}

// comb's first index is the source copy: copy 1 receives all of copy 0 and nothing of itself.
TEST(ReferenceHyperExpand, SendsSourceCopiesToTargets) {
  reference::Queue queue{Arena(0)};
  Buffer<bf16> stream = bf16s({1, 2, 1}, {3, 5});
  const Buffer<bf16> y = bf16s({1, 1}, {10});
  const Buffer<float> post({1, 2}, {0.5f, 2}), comb({1, 2, 2}, {0, 1, 0, 0});
  hyper_expand(
      queue, HyperExpandArgs{
                 .y = y.view(), .post = post.view(), .comb = comb.view(), .stream = stream.view()});
  EXPECT_EQ(floats(stream), (std::vector<float>{5, 23}));
}

TEST(ReferenceDraftTap, AveragesTheCopiesIntoItsTarget) {
  reference::Queue queue{Arena(0)};
  const Buffer<bf16> stream = bf16s({1, 2, 2}, {1, 2, 3, 6});
  Buffer<bf16> taps = bf16s({1, 2, 2}, {9, 9, 9, 9});
  draft_tap(queue, DraftTapArgs{.stream = stream.view(), .target = 1, .taps = taps.view()});
  EXPECT_EQ(floats(taps), (std::vector<float>{9, 9, 2, 4}));
}

}  // namespace
}  // namespace cachalot
