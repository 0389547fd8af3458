#include "engine/token_chances.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cachalot {
namespace {

TEST(TokenChances, AreTheLogarithmsOfTheSoftmax) {
  // exp: 1, 2, 4, 1; their sum is 8.
  const std::vector<float> logits = {0, std::log(2.0F), std::log(4.0F), 0};
  const TokenChances chances(logits);
  EXPECT_NEAR(chances.logprob(0), std::log(1.0 / 8), 1e-6);
  EXPECT_NEAR(chances.logprob(2), std::log(0.5), 1e-6);
}

TEST(TokenChances, RankTheBestAndTiesByTheLowerId) {
  const std::vector<float> logits = {1, 3, 1, 2};
  const auto best = TokenChances(logits).best(3);
  ASSERT_EQ(best.size(), 3U);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 0);
  EXPECT_TRUE(TokenChances(logits).best(0).empty());
  EXPECT_EQ(TokenChances(logits).best(20).size(), 4U);
}

TEST(TokenChances, StayFiniteWhereProbabilitiesAreZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1e4F, -infinity, -1e30F};
  const TokenChances chances(logits);
  EXPECT_EQ(chances.logprob(0), 0);
  EXPECT_EQ(chances.logprob(1), kLeastLogprob);
  EXPECT_EQ(chances.logprob(2), kLeastLogprob);
}

}  // namespace
}  // namespace cachalot
