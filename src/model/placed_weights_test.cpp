#include "model/placed_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace cachalot {
namespace {

const Checkpoint& nano() {
  static const Checkpoint checkpoint = *Checkpoint::open(CACHALOT_SOURCE_DIR "/models/nano");
  return checkpoint;
}
ModelWeights nano_weights() { return *ModelWeights::bind(nano()); }
int64_t backbone() { return nano().config().n_layers; }
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 2;

TEST(PlacedWeights, TakeExpertsInTurnDraftStagesFirst) {
  const ModelWeights weights = nano_weights();
  const std::vector<ExpertPlace> order = experts_in_turn(weights, backbone());
  const auto first_layer = static_cast<size_t>(backbone());
  EXPECT_EQ(order.front(), (ExpertPlace{first_layer, 0}));
  EXPECT_EQ(order.back().layer, first_layer - 1);

  const WeightPlacement dense = place_dense_weights(weights);
  EXPECT_EQ(dense.experts_placed(), 0);
  EXPECT_EQ(dense.experts_in_all(), std::ssize(order));
  const WeightPlacement all = place_weights(weights, order, kNoLimit);
  EXPECT_EQ(all.experts_placed(), std::ssize(order));
  EXPECT_EQ(bytes_beside(weights, all), 0);

  const int64_t room = dense.bytes + bytes_beside(weights, dense) / 2;
  const WeightPlacement half = place_weights(weights, order, room);
  EXPECT_LE(half.bytes, room);
  EXPECT_NEAR(static_cast<double>(half.experts_placed()),
              static_cast<double>(half.experts_in_all()) / 2, 2);
  // All that come before one that is not there are there.
  bool before = true;
  for (const auto& [layer, expert] : order) {
    const bool placed = half.experts[layer][expert];
    EXPECT_TRUE(before || !placed) << "layer " << layer << ", expert " << expert;
    before = placed;
  }
}

TEST(PlacedWeights, TakeExpertsInTheOrderAskedFor) {
  const ModelWeights weights = nano_weights();
  const std::vector<ExpertPlace> order = {{3, 5}, {0, 0}, {7, 15}};
  const WeightPlacement all = place_weights(weights, order, kNoLimit);
  EXPECT_EQ(all.experts_placed(), 3);
  for (const auto& [layer, expert] : order) EXPECT_TRUE(all.experts[layer][expert]);
  const int64_t dense = place_dense_weights(weights).bytes;
  const int64_t one = (bytes_beside(weights, place_dense_weights(weights)) -
                       bytes_beside(weights, place_weights(weights, {order.data(), 1}, kNoLimit)));
  const WeightPlacement first = place_weights(weights, order, dense + one);
  EXPECT_EQ(first.experts_placed(), 1);
  EXPECT_TRUE(first.experts[3][5]);
  EXPECT_EQ(place_weights(weights, order, dense - 1).bytes, dense);
}

bool same_bytes(View<const uint8_t> a, View<const uint8_t> b) {
  return std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

// With `beside` or without it the experts hold the same codes.
TEST(PlacedWeights, MoveWhatIsPlacedAndWhatIsToLieBeside) {
  const ModelWeights weights = nano_weights();
  const std::vector<ExpertPlace> order = {{3, 5}, {0, 0}};
  const WeightPlacement placement = place_weights(weights, order, kNoLimit);
  for (const MemorySpace* beside : {static_cast<const MemorySpace*>(nullptr), &host_memory()}) {
    size_t layers = 0;
    int64_t done = 0;
    const auto copied = copy_weights(weights, placement, host_memory(), beside,
                                     {.on_progress = [&](int64_t bytes) { done = bytes; },
                                      .on_experts = [&](const ExpertsWeights&) { ++layers; }});
    ASSERT_TRUE(copied) << copied.error().message;
    EXPECT_EQ(layers, weights.layers.size());
    EXPECT_EQ(done, placement.bytes + (beside ? bytes_beside(weights, placement) : 0));
    for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
      const ExpertsWeights &from = weights.layers[layer].experts,
                           &to = copied->layers[layer].experts;
      EXPECT_NE(from.shared.w1.codes.data, to.shared.w1.codes.data);
      EXPECT_TRUE(same_bytes(from.shared.w1.codes, to.shared.w1.codes));
      for (size_t e = 0; e < from.experts.size(); ++e) {
        const bool moved = placement.experts[layer][e] || beside != nullptr;
        EXPECT_EQ(from.experts[e].w2.codes.data != to.experts[e].w2.codes.data, moved);
        EXPECT_TRUE(same_bytes(from.experts[e].w2.codes, to.experts[e].w2.codes));
        EXPECT_TRUE(same_bytes(from.experts[e].w3.scales, to.experts[e].w3.scales));
      }
    }
  }
}

}  // namespace
}  // namespace cachalot
