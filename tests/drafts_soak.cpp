// What the tests of drafts try on few prompts and draws, on many. Not part of ctest: target `soak`.
#include <gtest/gtest.h>

#include "answer_batch.h"
#include "draft_distribution.h"
#include "draft_examples.h"

namespace cachalot {
namespace {

constexpr int64_t kBatch = 8;

std::vector<DraftParameters> every_depth() {
  std::vector<DraftParameters> all = {{.mode = DraftMode::automatic}};
  for (int64_t depth = 1; depth <= 5; ++depth) {
    all.push_back({.mode = DraftMode::fixed, .depth = depth});
  }
  return all;
}

// The answers of a batch, drafted to `depths[d]`, or each to another one.
std::vector<test::BatchAnswer> drafted(std::vector<test::BatchAnswer> answers,
                                       const DraftParameters& drafts) {
  for (test::BatchAnswer& answer : answers) answer.drafts = drafts;
  return answers;
}

// The prompts in parts, so that many processors can share the work (GTEST_TOTAL_SHARDS).
constexpr size_t kParts = 20;
class GreedyDraftsSoak : public ::testing::TestWithParam<size_t> {};

TEST_P(GreedyDraftsSoak, TextIsThePlainTextAtEveryDepthAloneAndTogetherColdAndCached) {
  const auto engine = test::open_engine(
      test::nano_path(), {.max_sequences = kBatch, .max_context = 1024, .rollback = 128});
  const std::vector<test::FamilyPrompt> prompts = test::family_prompts();
  ASSERT_EQ(prompts.size(), 500u);
  test::AnswerBatch batch(*engine, kBatch);
  int64_t texts = 0, tokens = 0, cycles = 0;
  const size_t start = GetParam() * prompts.size() / kParts;
  const size_t end = (GetParam() + 1) * prompts.size() / kParts;
  for (size_t first = start; first < end; first += kBatch) {
    std::vector<test::BatchAnswer> answers;
    for (size_t i = first; i < std::min(end, first + kBatch); ++i) {
      answers.push_back({.prompt = prompts[i].ids, .parameters = {}, .drafts = {}});
      GenerationParameters& parameters = answers.back().parameters;
      parameters.sampling.temperature = 0;
      parameters.max_tokens = 96;
      parameters.end_tokens = {1};
    }
    std::vector<std::vector<int32_t>> plain;
    for (const test::BatchAnswer& answer : answers) {
      plain.push_back(batch.decode({&answer, 1}).ids.front());
    }
    const auto compare = [&](std::span<const test::BatchAnswer> some, size_t at, bool cached) {
      const test::BatchResult result = batch.decode(some, cached);
      for (size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(result.ids[i], plain[at + i])
            << prompts[first + at + i].family << ", prompt " << first + at + i << ", depth "
            << some[i].drafts.depth << ", " << some.size() << " together, cached " << cached;
        ++texts;
        tokens += std::ssize(result.ids[i]) - 1;
        cycles += result.counts[i].cycles;
      }
    };
    for (const DraftParameters& drafts : every_depth()) {
      const std::vector<test::BatchAnswer> together = drafted(answers, drafts);
      for (const bool cached : {false, true}) compare(together, 0, cached);
      for (size_t i = 0; i < together.size(); ++i) {
        for (const bool cached : {false, true}) compare({&together[i], 1}, i, cached);
      }
      if (HasFatalFailure()) return;
    }
  }
  std::printf("%ld texts, %.2f tokens a step\n", texts,
              static_cast<double>(tokens) / static_cast<double>(cycles));
}

INSTANTIATE_TEST_SUITE_P(Parts, GreedyDraftsSoak, ::testing::Range(size_t{0}, kParts));

class ProbabilisticDraftsSoak : public ::testing::TestWithParam<size_t> {};

TEST_P(ProbabilisticDraftsSoak, TokensAreDistributedAsPlainOnes) {
  const auto engine = test::open_engine(test::nano_path(), {.rollback = 64});
  constexpr int64_t kDraws = 50000;
  const test::DistributionSetting setting = test::distribution_settings()[GetParam()];
  test::MemoEngine memo(*engine, test::open_ended_prompt());
  const auto plain =
      draw_pairs(memo, {.name = setting.name, .sampling = setting.sampling, .drafts = {}},
                 test::kOpenEndedAnchor, kDraws, 1);
  const auto drafts = draw_pairs(memo, setting, test::kOpenEndedAnchor, kDraws, 1'000'001);
  test::expect_equal_distributions(plain, drafts, setting.name);
}

INSTANTIATE_TEST_SUITE_P(Settings, ProbabilisticDraftsSoak, ::testing::Range(size_t{0}, size_t{3}));

}  // namespace
}  // namespace cachalot
