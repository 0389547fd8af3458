#include "engine/token_distribution.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/random.h"

namespace cachalot {
namespace {

struct Owned {
  std::vector<float> weights = std::vector<float>(64);

  TokenDistribution view() const {
    return {weights, std::accumulate(weights.begin(), weights.end(), 0.0)};
  }
};

Owned distribution(const std::vector<std::pair<int32_t, float>>& weights) {
  Owned result;
  for (const auto& [id, weight] : weights) result.weights[static_cast<size_t>(id)] = weight;
  return result;
}

// Chi-square of `draws` tokens against `target`; a token of probability 0 makes it infinite.
template <class Draw>
double chi_square(const TokenDistribution& target, int draws, Draw draw) {
  std::vector<int> counts(64);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(draw(static_cast<uint64_t>(i)))];
  double sum = 0;
  for (int32_t id = 0; id < 64; ++id) {
    const double expected = target.probability(id) * draws, difference = counts[id] - expected;
    if (difference != 0) sum += difference * difference / expected;
  }
  return sum;
}

constexpr int kDraws = 100000;
constexpr double kLimitOf5Degrees = 20.515;  // p = 0.001

double of_drafted_tokens(const Owned& target, const Owned& proposed) {
  return chi_square(target.view(), kDraws, [&](uint64_t i) {
    const int32_t draft = proposed.view().draw(uniform_random(1, 0, i, RandomUse::draft));
    return accept_or_replace(target.view(), proposed.view(), draft,
                             uniform_random(1, 0, i, RandomUse::accept), uniform_random(1, 0, i))
        .token;
  });
}

TEST(TokenDistribution, IsKeptByRejectionWhateverIsProposed) {
  const Owned target =
      distribution({{0, 3.0f}, {4, 1.0f}, {7, 0.5f}, {8, 0.25f}, {20, 2.0f}, {63, 0.01f}});
  for (const Owned& proposed :
       {distribution({{0, 1.0f}, {4, 3.0f}, {7, 0.5f}, {8, 0.25f}, {20, 2.0f}, {63, 1.0f}}),
        distribution({{4, 1.0f}}), distribution({{1, 1.0f}, {4, 1.0f}, {50, 9.0f}}),
        distribution({{3, 1.0f}}), target}) {
    EXPECT_LT(of_drafted_tokens(target, proposed), kLimitOf5Degrees);
  }
  // What the bound is worth: the drafts alone, and plain acceptance of half of them.
  const Owned near =
      distribution({{0, 2.9f}, {4, 1.1f}, {7, 0.5f}, {8, 0.25f}, {20, 2.0f}, {63, 0.01f}});
  EXPECT_GT(chi_square(target.view(), kDraws,
                       [&](uint64_t i) { return near.view().draw(uniform_random(1, 0, i)); }),
            kLimitOf5Degrees);
}

TEST(TokenDistribution, TakesEveryDraftOverWhereBothAreEqual) {
  const Owned both = distribution({{2, 0.3f}, {5, 0.7f}, {9, 2.0f}});
  for (uint64_t i = 0; i < 1000; ++i) {
    const int32_t draft = both.view().draw(uniform_random(3, 0, i, RandomUse::draft));
    EXPECT_TRUE(accept_or_replace(both.view(), both.view(), draft,
                                  uniform_random(3, 0, i, RandomUse::accept), 0.5)
                    .accepted);
  }
}

TEST(TokenDistribution, NeverTakesOverATokenTheTargetExcludes) {
  const Owned target = distribution({{5, 1.0f}}), proposed = distribution({{4, 1.0f}});
  const Verdict verdict = accept_or_replace(target.view(), proposed.view(), 4, 0, 0);
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.token, 5);
}

}  // namespace
}  // namespace cachalot
