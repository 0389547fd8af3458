#include "engine/generation.h"

#include <gtest/gtest.h>

#include <limits>

namespace cachalot {
namespace {

constexpr int32_t kVocabulary = 16;
constexpr int32_t kEnd = 1;

// Always names the successor of the last token; 15 is followed by the end token, 14 by nonsense.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(int64_t context) {
    config_.vocab_size = kVocabulary;
    config_.max_position_embeddings = context;
    options_.max_context = context;
    options_.max_step_tokens = 4;
    options_.rollback = 2;
  }

  const ModelConfig& config() const override { return config_; }
  const EngineOptions& options() const override { return options_; }
  std::string description() const override { return "counting"; }
  Result<int32_t> open_sequence() override {
    return ++open == 1 ? Result<int32_t>(0) : fail("full");
  }
  void close_sequence(int32_t) override { --open; }
  int64_t length(int32_t) const override { return std::ssize(tokens); }
  Result<DraftResult> draft(std::span<const DraftRequest>, Observer*) override {
    return fail("this model has no draft head");
  }
  Status truncate(int32_t, int64_t length) override {
    if (length != 0 && std::ssize(tokens) - length > options_.rollback) return fail("too far back");
    tokens.resize(static_cast<size_t>(length));
    return {};
  }

  Result<StepResult> step(const StepRequest& request) override {
    const SequenceStep& part = request.sequences[0];
    if (std::ssize(part.tokens) > options_.max_step_tokens) return fail("step too long");
    if (std::ssize(tokens) + std::ssize(part.tokens) > options_.max_context)
      return fail("context full");
    steps.push_back(std::ssize(part.tokens));
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    logits_.assign(kVocabulary, 0.0f);
    const int32_t last = tokens.back();
    logits_[last == 15 ? kEnd : last + 1] = 10;
    if (last == 14) logits_[3] = std::numeric_limits<float>::quiet_NaN();
    StepResult result;
    best_ = last == 14 ? -1 : last == 15 ? kEnd : last + 1;
    if (part.logits != LogitsOf::none) {  // answers ask for one token at a time
      result.logits = View<const float>(logits_.data(), Shape{1, kVocabulary});
      result.best = View<const int32_t>(&best_, Shape{1});
    }
    return result;
  }

  int open = 0;
  std::vector<int32_t> tokens;
  std::vector<int64_t> steps;

 private:
  ModelConfig config_;
  EngineOptions options_;
  std::vector<float> logits_;
  int32_t best_ = 0;
};

GenerationParameters greedy(int64_t max_tokens) {
  GenerationParameters parameters;
  parameters.sampling.temperature = 0;
  parameters.max_tokens = max_tokens;
  parameters.end_tokens = {kEnd, 9};
  return parameters;
}

using Ids = std::vector<int32_t>;

TEST(Generator, PrefillsInStepsOfBoundedSizeAndReportsProgress) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  std::vector<int64_t> progress;
  const auto result =
      generator->generate(Ids{2, 2, 2, 2, 2, 2, 2, 2, 2, 5}, greedy(3),
                          {.on_prefill = [&](int64_t done, int64_t) { progress.push_back(done); }});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->ids, (Ids{6, 7, 8}));
  EXPECT_EQ(result->finish, FinishReason::length);
  EXPECT_EQ(progress, (std::vector<int64_t>{4, 8, 10}));
  EXPECT_EQ(engine.steps, (std::vector<int64_t>{4, 4, 2, 1, 1}));
}

TEST(Generator, EndsAtAnEndTokenWithoutShowingIt) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  Ids shown;
  const auto result = generator->generate(Ids{6}, greedy(0), {.on_token = [&](int32_t token) {
                                            shown.push_back(token);
                                            return true;
                                          }});
  EXPECT_EQ(result->ids, (Ids{7, 8, 9}));
  EXPECT_EQ(shown, (Ids{7, 8}));
  EXPECT_EQ(result->finish, FinishReason::stop);
}

TEST(Generator, EndsWhereTheCallerSaysSo) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  const auto result =
      generator->generate(Ids{2}, greedy(0), {.on_token = [](int32_t token) { return token < 5; }});
  EXPECT_EQ(result->ids, (Ids{3, 4, 5}));
  EXPECT_EQ(result->finish, FinishReason::stop);
}

TEST(Generator, CanBeCancelledInPrefillAndInDecode) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  int asked = 0;
  const GenerationCallbacks callbacks{.cancelled = [&] { return ++asked > 2; }};
  auto result = generator->generate(Ids{2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, greedy(0), callbacks);
  EXPECT_EQ(result->finish, FinishReason::cancelled);
  EXPECT_TRUE(result->ids.empty());
  asked = 0;
  result = generator->generate(Ids{2}, greedy(0), callbacks);
  EXPECT_EQ(result->finish, FinishReason::cancelled);
  EXPECT_EQ(result->ids, (Ids{3, 4}));
}

TEST(Generator, StopsWhenTheContextIsFull) {
  CountingEngine engine(5);
  auto generator = Generator::open(engine);
  const auto result = generator->generate(Ids{2, 2}, greedy(0));
  EXPECT_EQ(result->ids, (Ids{3, 4, 5}));
  EXPECT_EQ(result->finish, FinishReason::length);
}

TEST(Generator, ComputesOnlyWhatTheCachesDoNotHold) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  auto result = generator->generate(Ids{2, 3, 4}, greedy(2));  // answers 5, 6; 6 is not computed
  engine.steps.clear();
  result = generator->generate(Ids{2, 3, 4, 5, 6, 2}, greedy(1));
  EXPECT_EQ(result->reused_tokens, 4);
  EXPECT_EQ(engine.steps, (std::vector<int64_t>{2}));

  result = generator->generate(Ids{2, 3, 4, 5, 6, 2}, greedy(1));  // the same again
  EXPECT_EQ(result->reused_tokens, 5);
  result = generator->generate(Ids{2, 3, 4, 5, 7}, greedy(1));  // cut back by 2: within rollback
  EXPECT_EQ(result->reused_tokens, 4);
  result = generator->generate(Ids{2, 4}, greedy(1));  // cut back by 4: from the start
  EXPECT_EQ(result->reused_tokens, 0);
  EXPECT_EQ(engine.tokens, (Ids{2, 4}));
}

TEST(Generator, RefusesPromptsItCannotServe) {
  CountingEngine engine(5);
  auto generator = Generator::open(engine);
  EXPECT_FALSE(generator->generate(Ids{}, greedy(1)).has_value());
  const auto result = generator->generate(Ids{2, 2, 2, 2, 2}, greedy(1));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(
      result.error().message,
      "the prompt has 5 tokens, which leaves no room for an answer in the context of 5: shorten "
      "the prompt or raise the context length");
}

TEST(Generator, EndsWithAnErrorAtUnusableLogitsAndServesTheNextRequest) {
  CountingEngine engine(100);
  auto generator = Generator::open(engine);
  EXPECT_FALSE(generator->generate(Ids{13}, greedy(0)).has_value());
  EXPECT_TRUE(generator->generate(Ids{2}, greedy(1)).has_value());
}

TEST(Generator, ClosesItsSequence) {
  CountingEngine engine(100);
  {
    auto generator = Generator::open(engine);
    Generator moved = std::move(*generator);
    EXPECT_EQ(engine.open, 1);
  }
  EXPECT_EQ(engine.open, 0);
}

}  // namespace
}  // namespace cachalot
