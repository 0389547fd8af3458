#include "engine/token_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/token_distribution.h"

namespace cachalot {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Cuts {
  double temperature = 1;
  int64_t count = 0;
  double share = 1, least = 0;
};

// The definition, with a full sort: id -> weight, 0 where it is left out.
std::vector<double> defined_weights(std::span<const float> logits, const Cuts& cuts) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> ranked;
  for (const int32_t id : order) {
    const double exponent = (double{logits[id]} - logits[order[0]]) / cuts.temperature;
    ranked.push_back(exponent < -44.36 ? 0 : std::exp(exponent));
  }
  const auto cut_behind = [&](size_t kept) {
    for (size_t rank = kept; rank < ranked.size(); ++rank) ranked[rank] = 0;
  };
  if (cuts.count > 0) cut_behind(static_cast<size_t>(cuts.count));
  const double total = std::accumulate(ranked.begin(), ranked.end(), 0.0);
  double sum = 0;
  size_t rank = 0;
  while (rank < ranked.size() && sum < cuts.share * total) sum += ranked[rank++];
  if (cuts.share < 1) cut_behind(rank);
  for (double& weight : ranked)
    if (weight < cuts.least) weight = 0;
  std::vector<double> weights(logits.size());
  for (size_t r = 0; r < ranked.size(); ++r) weights[order[r]] = ranked[r];
  return weights;
}

void cut(TokenWeights& weights, const Cuts& cuts) {
  if (cuts.count > 0) weights.keep_best(cuts.count);
  weights.weigh(cuts.temperature, cuts.share < 1 ? 0 : cuts.least);
  if (cuts.share < 1) weights.keep_share(cuts.share);
  if (cuts.least > 0) weights.keep_heaviest(cuts.least);
}

// Flat, wide and peaked rows, with many ties or none, some of them masked in part.
std::vector<float> random_row(std::mt19937& random, int64_t size, float range, bool ties,
                              bool masked) {
  std::normal_distribution<float> normal(0, range);
  std::vector<float> row(static_cast<size_t>(size));
  for (float& logit : row) {
    logit = normal(random);
    if (ties) logit = std::round(logit * 4) / 4;
    if (masked && random() % 3 == 0) logit = -kInf;
  }
  row[random() % row.size()] = 3 * range;
  return row;
}

TEST(TokenWeights, AreCutAsAFullSortCutsThem) {
  std::mt19937 random(20261130);
  TokenWeights weights;  // the same for all rows, as in use
  std::vector<float> kept;
  for (const int64_t size : {20000, 1, 2, 63, 64, 65, 500, 128, 5000})
    for (const float range : {0.02f, 1.0f, 9.0f})
      for (const bool ties : {false, true})
        for (const Cuts& cuts :
             {Cuts{}, Cuts{.temperature = 0.01}, Cuts{.count = 1}, Cuts{.count = 50},
              Cuts{.count = 700}, Cuts{.share = 0.9}, Cuts{.share = 0.2}, Cuts{.share = 0.99999},
              Cuts{.least = 0.1}, Cuts{.least = 1},
              Cuts{.temperature = 2, .count = 100, .share = 0.8, .least = 0.01}}) {
          const std::vector<float> row = random_row(random, size, range, ties, random() % 2 == 0);
          const std::vector<double> expected = defined_weights(row, cuts);
          ASSERT_TRUE(weights.start(row));
          EXPECT_EQ(weights.best_token(),
                    std::ranges::max_element(row, std::ranges::less()) - row.begin());
          cut(weights, cuts);
          weights.put(kept);
          for (int64_t id = 0; id < size; ++id) {
            ASSERT_NEAR(kept[id], expected[id], 4e-6 * expected[id])
                << id << " of " << size << ", range " << range;
          }
        }
}

TEST(TokenWeights, AreDrawnFromAsTheirDistribution) {
  std::mt19937 random(5);
  TokenWeights weights;
  std::vector<float> kept;
  for (const int64_t size : {1, 70, 20000})
    for (const Cuts& cuts : {Cuts{}, Cuts{.count = 30}, Cuts{.share = 0.7}, Cuts{.least = 0.3}}) {
      const std::vector<float> row = random_row(random, size, 2, true, true);
      ASSERT_TRUE(weights.start(row));
      cut(weights, cuts);
      weights.put(kept);
      const TokenDistribution listed{kept, weights.total()};
      for (int i = 0; i < 500; ++i) {
        const double number = std::ldexp(static_cast<double>(random()), -32);
        ASSERT_EQ(weights.draw(number), listed.draw(number));
      }
      const auto any = [](float weight) { return weight > 0; };
      EXPECT_EQ(weights.draw(0), std::ranges::find_if(kept, any) - kept.begin());
      const auto last = std::find_if(kept.rbegin(), kept.rend(), any);
      EXPECT_EQ(weights.draw(1), kept.rend() - last - 1);  // as rounding may have it
    }
}

}  // namespace
}  // namespace cachalot
