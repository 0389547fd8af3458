// Windows, groups, selections and routing on values small enough to work out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/reference/queue.h"
#include "tensor/block_quantizers.h"
#include "tensor/buffer.h"

namespace cachalot {
namespace {

// The rows of one step of one sequence in slot 0.
struct OneSequence {
  OneSequence(int32_t first, int64_t count)
      : positions({count}), slots({count}), first_rows({count}) {
    for (int64_t i = 0; i < count; ++i) positions.values()[i] = first + static_cast<int32_t>(i);
  }
  StepRows rows() const { return {positions.view(), slots.view(), first_rows.view()}; }

  Buffer<int32_t> positions, slots, first_rows;
};

constexpr int64_t kHeadDim = 32;
constexpr int64_t kRowBytes = window_row_bytes(kHeadDim);

// A row whose channels all hold `value`, an FP8 number.
std::vector<uint8_t> window_row(float value) {
  const std::vector<float> values(kHeadDim, value);
  std::vector<uint8_t> row(kRowBytes);
  quantize_window_row(values.data(), kHeadDim, row.data());
  return row;
}

Buffer<uint8_t> window_rows(const std::vector<float>& values) {
  Buffer<uint8_t> out({static_cast<int64_t>(values.size()), kRowBytes});
  for (size_t i = 0; i < values.size(); ++i)
    std::ranges::copy(window_row(values[i]), out.view().row(i));
  return out;
}

TEST(ReferenceWriteWindow, KeepsTheLastRowsOfALongStep) {
  reference::Queue queue{Arena(0)};
  const OneSequence step(5, 4);
  const Buffer<uint8_t> rows = window_rows({1, 2, 4, 8});
  Buffer<uint8_t> ring({1, 3, kRowBytes});
  write_window(
      queue, WriteWindowArgs{.rows = step.rows(), .window_rows = rows.view(), .ring = ring.view()});
  // Positions 6, 7, 8 stay, at position % 3.
  const float expected[] = {2, 4, 8};
  for (int64_t i = 0; i < 3; ++i) {
    const uint8_t* row = ring.view().data + i * kRowBytes;
    EXPECT_EQ(std::vector<uint8_t>(row, row + kRowBytes), window_row(expected[i])) << i;
  }
}

// Equal scores weigh all keys alike, so the output is the mean with the sink as one more zero.
TEST(ReferenceSparseAttention, SeesTheWindowAcrossStepsAndTheChosenLatents) {
  reference::Queue queue{Arena(0)};
  const OneSequence step(4, 2);
  const Buffer<uint8_t> now = window_rows({1, 2});
  Buffer<uint8_t> ring({1, 3, kRowBytes});  // position 3 at 0, 1 at 1, 2 at 2
  std::ranges::copy(window_rows({4, 64, 8}).values(), ring.values().begin());
  Buffer<uint8_t> latents({1, 4, latent_row_bytes(kHeadDim)});
  const std::vector<float> twelve(kHeadDim, 12);
  quantize_latent_row(twelve.data(), kHeadDim,
                      latents.values().data() + latent_row_bytes(kHeadDim));
  const Buffer<int32_t> table({1, 1}), chosen({2, 2}, {-1, -1, 1, -1});
  const Buffer<bf16> q({2, 1, kHeadDim});
  const Buffer<float> sink({1}), frequencies({0});
  Buffer<bf16> o({2, 1, kHeadDim});
  sparse_attention(queue, SparseAttentionArgs{.rows = step.rows(),
                                              .q = q.view(),
                                              .window_rows = now.view(),
                                              .ring = ring.view(),
                                              .window = 3,
                                              .chosen = chosen.view(),
                                              .latents = {latents.view(), table.view()},
                                              .sink = sink.view(),
                                              .frequencies = frequencies.view(),
                                              .scale = 1,
                                              .o = o.view()});
  EXPECT_EQ(to_float(o.view().row(0)[0]), round_to_bf16((8 + 4 + 1) / 4.0f));
  EXPECT_EQ(to_float(o.view().row(1)[5]), round_to_bf16((4 + 1 + 2 + 12) / 5.0f));
}

// A group may complete in a later step; the stored entry is the same.
TEST(ReferenceCompressKv, CompletesGroupsAcrossSteps) {
  constexpr int64_t kTokens = 7, kRatio = 2;
  Buffer<float> kv({kTokens, kHeadDim}), gate({kTokens, kHeadDim});
  for (size_t i = 0; i < kv.values().size(); ++i) {
    kv.values()[i] = std::sin(static_cast<float>(i));
    gate.values()[i] = std::cos(static_cast<float>(3 * i));
  }
  Buffer<bf16> norm({kHeadDim});
  for (bf16& value : norm.values()) value = to_bf16(1);
  const Buffer<float> frequencies({4}, {1, 0.5f, 0.25f, 0.125f});
  const Buffer<int32_t> table({1, 1});
  const auto latents_of = [&](const std::vector<int64_t>& steps) {
    reference::Queue queue{Arena(0)};
    Buffer<uint8_t> latents({1, 4, latent_row_bytes(kHeadDim)});
    Buffer<float> open({1, kRatio - 1, 2, kHeadDim});
    int64_t at = 0;
    for (const int64_t count : steps) {
      const OneSequence step(static_cast<int32_t>(at), count);
      Buffer<bf16> latent({count, kHeadDim});
      compress_kv(queue, CompressKvArgs{.rows = step.rows(),
                                        .ratio = kRatio,
                                        .kv = {kv.view().row(at), {count, kHeadDim}},
                                        .gate = {gate.view().row(at), {count, kHeadDim}},
                                        .open_rows = open.view(),
                                        .norm = norm.view(),
                                        .norm_eps = 1e-20f,
                                        .frequencies = frequencies.view(),
                                        .latent = latent.view(),
                                        .latents = {latents.view(), table.view()}});
      at += count;
    }
    return latents.values();
  };
  const std::vector<uint8_t> whole = latents_of({kTokens});
  for (int64_t cut = 1; cut < kTokens; ++cut) EXPECT_EQ(latents_of({cut, kTokens - cut}), whole);
  // Three groups are complete, the fourth entry is untouched.
  EXPECT_TRUE(std::all_of(whole.end() - latent_row_bytes(kHeadDim), whole.end(),
                          [](uint8_t byte) { return byte == 0; }));
}

// Keys that differ in one channel only, so that scores are easily told.
struct Selection {
  explicit Selection(const std::vector<float>& scores)
      : keys({1, 16, index_key_row_bytes(32)}), q({1, 1, 32}), weights({1, 1}) {
    for (size_t j = 0; j < scores.size(); ++j) {
      std::vector<float> key(32);
      key[0] = scores[j];
      quantize_index_row(key.data(), 32, keys.values().data() + j * index_key_row_bytes(32));
    }
    q.values()[0] = weights.values()[0] = to_bf16(1);
  }
  IndexSelectArgs args(const OneSequence& step, View<int32_t> chosen) const {
    return {.rows = step.rows(),
            .q = q.view(),
            .weights = weights.view(),
            .weight_scale = 1,
            .frequencies = frequencies.view(),
            .keys = {keys.view(), table.view()},
            .candidate_block = 2,
            .chosen = chosen};
  }
  Buffer<uint8_t> keys;
  Buffer<bf16> q, weights;
  Buffer<float> frequencies{Shape{0}};
  Buffer<int32_t> table{Shape{1, 1}};
};

TEST(ReferenceIndexSelect, PrefersTheLowerEntryAmongEqualScoresAndSortsThem) {
  reference::Queue queue{Arena(0)};
  const Selection selection({1, 2, -4, 2, 2, 1, 6});
  const OneSequence step(5, 1);  // sees entries 0 to 5
  Buffer<int32_t> chosen({1, 3});
  index_select(queue, selection.args(step, chosen.view()));
  EXPECT_EQ(chosen.values(), (std::vector<int32_t>{1, 3, 4}));
  Buffer<int32_t> two({1, 2}), all({1, 8});
  index_select(queue, selection.args(step, two.view()));
  EXPECT_EQ(two.values(), (std::vector<int32_t>{1, 3}));
  index_select(queue, selection.args(step, all.view()));
  EXPECT_EQ(all.values(), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, -1, -1}));
}

TEST(ReferenceIndexSelect, AlwaysKeepsTheNewestBlockAmongTheCandidates) {
  reference::Queue queue{Arena(0)};
  const Selection selection({6, 1, 1, 4, 2, 2, 0});
  const OneSequence step(6, 1);  // blocks 0 to 3, the last half filled and worst
  Buffer<int32_t> candidates({1, 2}), chosen({1, 3});
  IndexSelectArgs args = selection.args(step, chosen.view());
  args.candidate_use = CandidateUse::build;
  args.candidates = candidates.view();
  index_select(queue, args);
  EXPECT_EQ(candidates.values(), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(chosen.values(), (std::vector<int32_t>{0, 3, 4}));  // not restricted itself
  args.candidate_use = CandidateUse::use;
  index_select(queue, args);
  EXPECT_EQ(chosen.values(), (std::vector<int32_t>{0, 1, 6}));
}

TEST(ReferenceRoute, LetsTheBiasSteerTheChoiceOnly) {
  reference::Queue queue{Arena(0)};
  Buffer<bf16> x({2, 32});
  const Buffer<bf16> gate({4, 32});  // all affinities are sqrt(ln 2)
  const Buffer<float> bias({4}, {100, 0, 0, 0}), bias_image({4}, {0, 0, 0, 100});
  const Buffer<int32_t> image({2}, {-1, 0});
  Buffer<int32_t> ids({2, 2});
  Buffer<float> weights({2, 2});
  route(queue, RouteArgs{.x = x.view(),
                         .gate = gate.view(),
                         .bias = bias.view(),
                         .bias_image = bias_image.view(),
                         .image_index = image.view(),
                         .route_scale = 1.5f,
                         .ids = ids.view(),
                         .weights = weights.view()});
  EXPECT_EQ(ids.values(), (std::vector<int32_t>{0, 1, 3, 0}));
  for (const float weight : weights.values()) EXPECT_FLOAT_EQ(weight, 0.75f);
}

TEST(CheckShapesDeathTest, NamesOperationFieldExpectedAndFound) {
  const Buffer<float> post({2, 4}), comb({2, 4, 3});
  const Buffer<bf16> y({2, 8});
  Buffer<bf16> stream({2, 4, 8});
  EXPECT_DEATH(
      check_shapes(HyperExpandArgs{
          .y = y.view(), .post = post.view(), .comb = comb.view(), .stream = stream.view()}),
      "hyper_expand: comb is \\[2, 4, 3\\], expected \\[2, 4, 4\\]");
  EXPECT_DEATH(check_shapes(DraftTapArgs{.stream = stream.view()}), "draft_tap: taps is absent");
}

}  // namespace
}  // namespace cachalot
