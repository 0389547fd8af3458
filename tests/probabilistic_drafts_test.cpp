// Drafts drawn from the draft head's distribution: another text, from the same distribution.
#include <gtest/gtest.h>

#include "alternating_mask.h"
#include "answer_batch.h"
#include "draft_distribution.h"
#include "draft_examples.h"
#include "test_engine.h"

namespace cachalot {
namespace {

constexpr DraftParameters kPlain = {};
constexpr DraftParameters kFour = {
    .mode = DraftMode::fixed, .depth = 4, .method = DraftMethod::probabilistic};
constexpr DraftParameters kAuto = {
    .mode = DraftMode::automatic, .depth = 0, .method = DraftMethod::probabilistic};

GenerationParameters parameters_of(double temperature, uint64_t seed = 0) {
  GenerationParameters parameters;
  parameters.sampling.temperature = temperature;
  parameters.sampling.seed = seed;
  parameters.max_tokens = 48;
  parameters.end_tokens = {1};
  return parameters;
}

std::vector<test::DraftExample> short_prompts(size_t count) {
  std::vector<test::DraftExample> result;
  for (test::DraftExample& example : test::draft_examples()) {
    if (example.prompt.size() < 100 && result.size() < count) result.push_back(std::move(example));
  }
  return result;
}

TEST(ProbabilisticDrafts, AreGreedyDecodingWithoutTemperature) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  Generator plain = *Generator::open(*engine);
  Generator drafting = *Generator::open(*engine, kFour);
  GenerationParameters penalized = parameters_of(0);
  penalized.sampling.repetition_penalty = 1.3;
  penalized.sampling.frequency_penalty = 0.5;
  penalized.sampling.logit_bias = {{263, 1.5}};
  int64_t accepted = 0, drafted = 0;
  for (const test::DraftExample& example : short_prompts(8)) {
    for (const GenerationParameters& parameters : {parameters_of(0), penalized}) {
      const auto found = drafting.generate(example.prompt, parameters);
      ASSERT_TRUE(found) << found.error().message;
      EXPECT_EQ(found->ids, plain.generate(example.prompt, parameters)->ids) << example.family;
      drafted += found->drafted;
      for (const int64_t count : found->accepted) accepted += count;
    }
  }
  EXPECT_GT(accepted, drafted / 3);
}

// Alone on one thread, and together with others of other depths on two; from nothing and from the
// caches.
TEST(ProbabilisticDrafts, DependOnTheSeedAlone) {
  const std::vector<test::DraftExample> prompts = short_prompts(6);
  std::vector<test::BatchAnswer> answers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    answers.push_back({.prompt = prompts[i].prompt,
                       .parameters = parameters_of(1.3, 5 + i / 2),
                       .drafts = i % 3 == 0 ? kAuto : kFour});
    answers.back().parameters.choice = static_cast<uint32_t>(i % 2);
  }
  const EngineOptions options = {.max_sequences = 6, .max_context = 512, .rollback = 64};
  EngineOptions alone = options, together = options;
  alone.threads = 1;
  together.threads = 2;
  const auto engine = test::open_engine(test::nano_path(), alone);
  std::vector<std::vector<int32_t>> expected;
  for (const test::BatchAnswer& answer : answers) {
    test::AnswerBatch batch(*engine, 1);
    expected.push_back(batch.decode({&answer, 1}).ids.front());
  }
  const auto other = test::open_engine(test::nano_path(), together);
  test::AnswerBatch batch(*other, 6);
  EXPECT_EQ(batch.decode(answers).ids, expected);
  EXPECT_EQ(batch.decode(answers, true).ids, expected);
  // Other answers to the same prompt, with the same seed, are others.
  std::vector<test::BatchAnswer> choices(4, answers.front());
  for (uint32_t choice = 0; choice < 4; ++choice) choices[choice].parameters.choice = choice;
  const std::vector<int32_t> open_ended = test::open_ended_prompt();
  for (auto& choice : choices) choice.prompt = open_ended;
  const auto found = batch.decode(choices).ids;
  EXPECT_NE(found[0], found[1]);
  EXPECT_NE(found[2], found[3]);
}

TEST(ProbabilisticDrafts, KeepToTheMaskWhichHearsOfAcceptedTokensOnly) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2});
  Generator drafting = *Generator::open(*engine, kFour);
  int64_t accepted = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    test::AlternatingMask mask(engine->config().vocab_size);
    GenerationParameters parameters = parameters_of(1, seed);
    parameters.mask = &mask;
    parameters.sampling.logit_bias = {{1, -100.0}};
    const auto found = drafting.generate(test::open_ended_prompt(), parameters);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(mask.accepted(), found->ids);
    for (size_t i = 0; i < found->ids.size(); ++i) {
      EXPECT_EQ(static_cast<size_t>(found->ids[i]) % 2, i % 2) << "token " << i;
    }
    for (const int64_t count : found->accepted) accepted += count;
  }
  EXPECT_GT(accepted, 0);
}

// The small form of what the soak draws 50,000 times from every setting.
TEST(ProbabilisticDrafts, AreDistributedAsPlainTokens) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .rollback = 64});
  constexpr int64_t kDraws = 2000;
  const test::DistributionSetting setting = test::distribution_settings().front();
  test::MemoEngine memo(*engine, test::open_ended_prompt());
  const auto plain =
      draw_pairs(memo, {setting.name, setting.sampling, kPlain}, test::kOpenEndedAnchor, kDraws, 1);
  const auto drafted = draw_pairs(memo, setting, test::kOpenEndedAnchor, kDraws, 1'000'001);
  test::expect_equal_distributions(plain, drafted, setting.name);
}

}  // namespace
}  // namespace cachalot
