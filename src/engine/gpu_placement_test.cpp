#include "engine/gpu_placement.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot {
namespace {

ModelConfig nano() { return *load_config(CACHALOT_SOURCE_DIR "/models/nano"); }

TEST(GpuPlacement, TakesTheProfilesExpertsFirstAndEachOnce) {
  const ModelConfig config = nano();
  const Checkpoint checkpoint = Checkpoint::planned(config);
  const ModelWeights weights = *ModelWeights::bind(checkpoint);
  ExpertProfile profile;
  for (const LayerWeights& layer : weights.layers) {
    profile.tokens.emplace_back(layer.experts.experts.size(), 0);
  }
  profile.tokens[4][2] = 7;
  profile.tokens[1][3] = 9;
  profile.tokens[0][3] = 7;
  std::vector<ExpertPlace> order = experts_by_use(weights, config, &profile);
  std::vector<ExpertPlace> in_turn = experts_by_use(weights, config, nullptr);
  EXPECT_EQ(in_turn, experts_in_turn(weights, config.n_layers));
  EXPECT_EQ(order[0], (ExpertPlace{1, 3}));
  EXPECT_EQ(order[1], (ExpertPlace{0, 3}));
  EXPECT_EQ(order[2], (ExpertPlace{4, 2}));
  EXPECT_EQ(order[3], in_turn[0]);
  const auto before = [](const ExpertPlace& a, const ExpertPlace& b) {
    return std::pair(a.layer, a.expert) < std::pair(b.layer, b.expert);
  };
  std::ranges::sort(order, before);
  std::ranges::sort(in_turn, before);
  EXPECT_EQ(order, in_turn);
}

TEST(GpuPlacement, IsNamedAndToldApart) {
  WeightPlacement placement{.experts = {{true, true}, {true, true}}, .tables = {}};
  EXPECT_EQ(text_of(placement), "all experts");
  EXPECT_EQ(arithmetic_of(placement), "");
  placement.experts[1][0] = false;
  EXPECT_EQ(text_of(placement), "3 of 4 experts");
  const std::string one = arithmetic_of(placement);
  EXPECT_NE(one, "");
  placement.experts = {{true, false}, {true, true}};
  EXPECT_NE(arithmetic_of(placement), one);
  placement.experts = {{false, false}, {false, false}};
  EXPECT_EQ(text_of(placement), "no experts");
}

}  // namespace
}  // namespace cachalot
