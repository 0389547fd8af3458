#include "backend/cpu/top_entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/matmul_test_data.h"
#include "backend/cpu/shortlist.h"

namespace cachalot::cpu {
namespace {

using cpu::testing::isas;

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

// By every instruction set's kernels.
std::vector<int64_t> shortlisted(const RowKernels& rows, const std::vector<float>& scores,
                                 int64_t k) {
  std::vector<std::byte> memory(Shortlist::bytes(k));
  std::vector<int64_t> out;
  Shortlist(memory.data()).choose(rows, scores.data(), std::ssize(scores), k, [&](int64_t i) {
    out.push_back(i);
  });
  return out;
}

TEST(Shortlist, EqualsAStableSort) {
  std::mt19937 engine(3);
  std::normal_distribution<float> draw;
  for (const Isa isa : isas()) {
    const RowKernels& rows = row_kernels_for(isa);
    for (const int64_t n : {1, 100, 4096, 20011}) {
      for (const int64_t k : {1, 7, 512, 2048}) {
        std::vector<float> scores(n), coarse(n), mostly_bad(n), zeros(n);
        for (int64_t i = 0; i < n; ++i) {
          scores[i] = draw(engine);
          coarse[i] = std::round(scores[i] * 2);  // mostly ties, both zeros
          mostly_bad[i] = i % 7 == 3   ? scores[i]
                          : i % 2 == 0 ? std::nanf("")
                                       : -std::numeric_limits<float>::infinity();
          zeros[i] = std::max(scores[i] - 3, 0.0f);
        }
        EXPECT_EQ(shortlisted(rows, scores, k), sorted(scores, k)) << n << ", " << k;
        EXPECT_EQ(shortlisted(rows, coarse, k), sorted(coarse, k)) << n << ", " << k;
        EXPECT_EQ(shortlisted(rows, mostly_bad, k), sorted(mostly_bad, k)) << n << ", " << k;
        EXPECT_EQ(shortlisted(rows, zeros, k), sorted(zeros, k)) << n << ", " << k;
      }
    }
  }
}

TEST(Shortlist, BoundIsReachedByTheLargestAndFewMore) {
  std::mt19937 engine(5);
  std::normal_distribution<float> draw;
  std::vector<float> scores(5003);
  for (float& score : scores) score = draw(engine);
  for (const Isa isa : isas()) {
    const RowKernels& rows = row_kernels_for(isa);
    for (const int64_t k : {1, 500, 5003, 9000}) {
      const float least = bound_of_largest(rows, scores.data(), std::ssize(scores), k);
      const int64_t reached = rows.count_at_least(scores.data(), std::ssize(scores), least);
      EXPECT_GE(reached, std::min<int64_t>(k, std::ssize(scores)));
      EXPECT_LE(reached, k + k / 8);
    }
  }
}

TEST(RowKernels, BlockMaximaPassOverWhatIsNotANumber) {
  const float bad = -std::numeric_limits<float>::infinity(), nan = std::nanf("");
  std::vector<float> scores(45, nan);
  for (const int i : {3, 8, 9, 23, 31, 44}) scores[i] = static_cast<float>(i % 5) - 7;
  for (const Isa isa : isas()) {
    std::vector<float> out(6);
    row_kernels_for(isa).block_maxima(scores.data(), std::ssize(scores), 8, out.data());
    EXPECT_EQ(out, (std::vector<float>{-4, -3, -4, -6, bad, -3})) << name_of(isa);
  }
}

}  // namespace
}  // namespace cachalot::cpu
