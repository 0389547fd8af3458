// best_tokens and take_drafts: ties, rows that mean nothing, the released vocabulary, many rows.
#include <cmath>
#include <limits>

#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> best_of(View<const float> logits) {
  std::vector<int32_t> best(static_cast<size_t>(logits.extent(0)), -2);
  mirrored::Queue queue(gpu_queue());
  best_tokens(queue, BestTokensArgs{.logits = logits, .best = {best.data(), {logits.extent(0)}}});
  return best;
}

TEST(BestTokens, AgreesOnTheReleasedVocabulary) {
  for (const int64_t rows : {1, 6, 64}) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    RandomTensors random(1);
    const BestTokensArgs args{.logits = random.floats({rows, 129280}),
                              .best = random.tensor<int32_t>({rows})};
    CACHALOT_EXPECT_GPU_AGREES(best_tokens, args);
  }
}

// Wherever the best token lies, in whichever block, and whatever the width leaves over.
TEST(BestTokens, FindsTheBestAtEveryPlace) {
  for (const int64_t vocab : {1, 5, 255, 4096, 4097, 8196}) {
    RandomTensors random(2);
    const View<float> logits = random.floats({vocab, vocab > 300 ? 300 : vocab});
    const View<float> rows{logits.data, {logits.elements() / vocab, vocab}};
    for (int64_t row = 0; row < rows.extent(0); ++row) {
      const int64_t at = row * 31 % vocab;
      rows.row(row)[at] = 100;
      if (at + 1 < vocab) rows.row(row)[vocab - 1] = 100;
    }
    const std::vector<int32_t> best = best_of(rows);
    for (int64_t row = 0; row < rows.extent(0); ++row) {
      EXPECT_EQ(best[static_cast<size_t>(row)], row * 31 % vocab) << vocab << ", row " << row;
    }
  }
}

TEST(BestTokens, GivesTiesToTheLowerIdAndNamesRowsThatMeanNothing) {
  for (const int64_t vocab : {20011, 20012}) {
    RandomTensors random(3);
    const View<float> logits = random.tensor<float>({8, vocab});
    std::fill_n(logits.data, logits.elements(), -1.0f);
    logits.row(1)[19000] = logits.row(1)[333] = logits.row(1)[334] = 0.0f;
    logits.row(1)[200] = -0.0f;
    logits.row(2)[19999] = kInfinity;
    logits.row(3)[7] = std::nanf("");
    logits.row(4)[7] = -std::nanf("");
    std::fill_n(logits.row(5), vocab, -kInfinity);
    std::fill_n(logits.row(6), vocab, -kInfinity);
    logits.row(6)[20010] = std::numeric_limits<float>::lowest();
    logits.row(7)[0] = -kInfinity;
    EXPECT_EQ(best_of(logits), (std::vector<int32_t>{0, 200, -1, -1, -1, -1, 20010, 1})) << vocab;
  }
}

// More rows than one launch takes, twice: counters are left as they were found.
TEST(BestTokens, TakesAnyNumberOfRows) {
  RandomTensors random(4);
  const BestTokensArgs args{.logits = random.floats({70000, 9}),
                            .best = random.tensor<int32_t>({70000})};
  CACHALOT_EXPECT_GPU_AGREES(best_tokens, args);
  CACHALOT_EXPECT_GPU_AGREES(best_tokens, args);
}

TEST(TakeDrafts, AgreesOnManyTokens) {
  RandomTensors random(5);
  const TakeDraftsArgs args{.given = random.integers({1000}, 0, 99),
                            .places = random.integers({1000}, -1, 319),
                            .drafts = random.integers({320}, 100, 999),
                            .ids = random.tensor<int32_t>({1000})};
  CACHALOT_EXPECT_GPU_AGREES(take_drafts, args);
}

}  // namespace
}  // namespace cachalot
