#include "backend/cpu/top_entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/score_counts.h"

namespace cachalot::cpu {
namespace {

std::vector<int64_t> chosen(const std::vector<float>& scores, int64_t k) {
  std::vector<int64_t> out;
  TopEntries().choose(scores.data(), static_cast<int64_t>(scores.size()), k,
                      [&](int64_t i) { out.push_back(i); });
  return out;
}

// By a stable sort: ties stay in order of index.
std::vector<int64_t> sorted(const std::vector<float>& scores, int64_t k) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -std::numeric_limits<float>::infinity()) {
      order.push_back(static_cast<int64_t>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TopEntries, EqualAStableSort) {
  std::mt19937 engine(1);
  std::normal_distribution<float> draw;
  for (const int64_t n : {1, 10, 1000, 5000}) {
    for (const int64_t k : {1, 7, 512, 6000}) {
      std::vector<float> scores(n), coarse(n);
      for (int64_t i = 0; i < n; ++i) {
        scores[i] = draw(engine);
        coarse[i] = std::round(scores[i] * 2);  // mostly ties, both zeros
      }
      EXPECT_EQ(chosen(scores, k), sorted(scores, k)) << n << ", " << k;
      EXPECT_EQ(chosen(coarse, k), sorted(coarse, k)) << n << ", " << k;
    }
  }
}

TEST(TopEntries, NeverChooseInfinitelyBadOrNotANumber) {
  const float bad = -std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> scores = {bad, -3, nan, -0.0f, 0.0f, bad, -nan, 2, -1e38f};
  EXPECT_EQ(chosen(scores, 9), (std::vector<int64_t>{1, 3, 4, 7, 8}));
  EXPECT_EQ(chosen(scores, 6), (std::vector<int64_t>{1, 3, 4, 7, 8}));
  EXPECT_EQ(chosen(scores, 2), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(chosen({bad, bad, bad}, 2), (std::vector<int64_t>{}));
}

TEST(ScoreCounts, KeepTheLargestWhoeverCounts) {
  std::mt19937 engine(5);
  std::normal_distribution<float> draw;
  std::vector<float> scores(5000);
  for (float& score : scores) score = draw(engine);
  constexpr int kThreads = 3;
  std::vector<int32_t> memory(kThreads * ScoreCounts::kDigits, -1);
  ScoreCounts counts(memory.data());
  for (int thread = 0; thread < kThreads; ++thread) counts.clear(thread);
  counts.add(0, scores.data(), 100);
  counts.add(2, scores.data() + 100, 4900);
  for (const int64_t k : {1, 500, 5000, 9000}) {
    const uint32_t least = counts.least_of(k, kThreads);
    const auto kept = std::count_if(scores.begin(), scores.end(),
                                    [&](float score) { return score_order(score) >= least; });
    EXPECT_GE(kept, std::min<int64_t>(k, std::ssize(scores)));
    EXPECT_LE(kept, k + 1000);
  }
}

}  // namespace
}  // namespace cachalot::cpu
