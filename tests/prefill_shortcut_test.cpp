// The prefill shortcut (docs/prefill_shortcut.md): its lower half leaves what whole steps leave,
// its upper half is exact wherever nothing is cut off, and no cut of the prompt shows.
#include "model/prefill_shortcut.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backend/cpu/queue.h"
#include "engine/generation.h"
#include "model/decoder.h"
#include "test_engine.h"

namespace cachalot {
namespace {

using Logits = std::vector<float>;
using Ids = std::vector<int32_t>;

Ids random_tokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  Ids tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(5 + random() % (static_cast<uint32_t>(vocabulary) - 5)));
  }
  return tokens;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class T>
std::vector<T> copied(View<const T> view) {
  return std::vector<T>(view.data, view.data + view.elements());
}

// One sequence of an engine, step by step.
class Walker {
 public:
  explicit Walker(Engine& engine) : engine_(engine), sequence_(*engine.open_sequence()) {}
  ~Walker() { engine_.close_sequence(sequence_); }
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;

  Status try_step(StepPart part, std::span<const int32_t> tokens, LogitsOf logits,
                  bool draft_taps = false) {
    const SequenceStep step{.sequence = sequence_, .tokens = tokens, .logits = logits};
    const auto result = engine_.step(
        {.sequences = {&step, 1}, .draft_taps = draft_taps, .show_taps = draft_taps, .part = part});
    if (!result) return fail(result.error());
    logits_ = copied(result->logits);
    taps_.clear();
    for (bf16 value : copied(result->taps)) taps_.push_back(to_float(value));
    return {};
  }
  Logits step(StepPart part, std::span<const int32_t> tokens, LogitsOf logits,
              bool draft_taps = false) {
    const Status status = try_step(part, tokens, logits, draft_taps);
    if (!status) throw std::runtime_error(status.error().message);
    return logits_;
  }
  Logits whole(std::span<const int32_t> tokens) {
    return step(StepPart::whole, tokens, LogitsOf::last);
  }
  // Lower steps of `chunk` tokens, then the upper step of the last `tail`.
  Logits shortcut(std::span<const int32_t> tokens, size_t chunk, size_t tail,
                  bool draft_taps = false) {
    for (size_t first = 0; first < tokens.size(); first += chunk) {
      step(StepPart::lower, tokens.subspan(first, std::min(chunk, tokens.size() - first)),
           LogitsOf::none);
    }
    return step(StepPart::upper, tokens.last(std::min(tail, tokens.size())), LogitsOf::last,
                draft_taps);
  }
  // Logits after each of the tokens, appended one at a time.
  Logits decode(std::span<const int32_t> tokens) {
    Logits all;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Logits row = whole(tokens.subspan(i, 1));
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  Logits drafts(int32_t anchor) {
    const DraftRequest request{.sequence = sequence_, .anchor = anchor, .show_logits = true};
    const auto result = engine_.draft({&request, 1});
    if (!result) throw std::runtime_error(result.error().message);
    return copied(result->logits);
  }
  Status truncate(int64_t length) { return engine_.truncate(sequence_, length); }
  const Logits& taps() const { return taps_; }

 private:
  Engine& engine_;
  int32_t sequence_;
  Logits logits_, taps_;
};

class PrefillShortcut : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const {
    return GetParam() == "nano" ? test::nano_path() : test::data_path(GetParam());
  }
  std::unique_ptr<Engine> engine(int64_t tail = 0, Backend backend = Backend::cpu) const {
    return test::open_engine(folder(), {.backend = backend,
                                        .threads = 2,
                                        .max_sequences = 2,
                                        .max_context = 512,
                                        .shortcut_tail = tail});
  }
};

TEST_P(PrefillShortcut, IsExactToTheBitForPromptsThatFitInTheTail) {
  const auto model = engine(200);
  const bool drafts = shortcut_feeds_drafts(model->config());
  for (int64_t length : {1, 2, 7, 130, 199, 200}) {
    const Ids prompt = random_tokens(length, model->config().vocab_size, 1);
    const Ids reply = random_tokens(12, model->config().vocab_size, 2);
    Walker exact(*model);
    const Logits expected = exact.step(StepPart::whole, prompt, LogitsOf::last, drafts);
    const Logits taps = exact.taps(), block = drafts ? exact.drafts(reply[0]) : Logits();
    const Logits after = exact.decode(reply);
    for (size_t chunk : {3, 64, 200}) {
      SCOPED_TRACE(fmt::format("{} tokens in chunks of {}", length, chunk));
      Walker walker(*model);
      EXPECT_TRUE(same_bits(walker.shortcut(prompt, chunk, 200, drafts), expected));
      EXPECT_TRUE(same_bits(walker.taps(), taps));
      if (drafts) {
        EXPECT_TRUE(same_bits(walker.drafts(reply[0]), block));
      }
      EXPECT_TRUE(same_bits(walker.decode(reply), after));
    }
  }
}

TEST_P(PrefillShortcut, DoesNotDependOnHowThePromptIsCut) {
  const auto model = engine();
  const auto tail = static_cast<size_t>(*model->options().shortcut_tail);
  EXPECT_EQ(model->options().shortcut_tail, model->config().window_size);
  const Ids prompt = random_tokens(219, model->config().vocab_size, 3);
  const Ids reply = random_tokens(80, model->config().vocab_size, 4);
  Walker first(*model);
  const Logits expected = first.shortcut(prompt, 219, tail);
  const Logits after = first.decode(reply);
  for (size_t chunk : {1, 5, 64, 100}) {
    Walker walker(*model);
    EXPECT_TRUE(same_bits(walker.shortcut(prompt, chunk, tail), expected)) << chunk;
    EXPECT_TRUE(same_bits(walker.decode(reply), after)) << chunk;
  }
  // With the cut on top the last token's window is all there is to see.
  const bool on_top = shortcut_cut(model->config()) + 1 == model->config().n_layers;
  Walker exact(*model);
  EXPECT_EQ(same_bits(exact.whole(prompt), expected), on_top);
}

// Truncated windows are the only approximation: a tail that holds everything the last row's windows
// reach, window - 1 positions a layer, leaves nothing out.
TEST_P(PrefillShortcut, IsExactToTheBitWhereTheTailHoldsAllThatTheWindowsReach) {
  const ModelConfig config = *load_config(folder());
  const int64_t reach = (config.n_layers - shortcut_cut(config)) * (config.window_size - 1);
  const auto model = engine(reach + 1);
  const Ids prompt = random_tokens(reach + 150, config.vocab_size, 14);
  Walker exact(*model), walker(*model);
  const Logits expected = exact.whole(prompt);
  EXPECT_TRUE(same_bits(walker.shortcut(prompt, 97, static_cast<size_t>(reach + 1)), expected));
}

// A suffix after whole steps: where it fits in the tail the windows are contiguous.
TEST_P(PrefillShortcut, ContinuesASequenceExactlyWhereNothingIsLeftOut) {
  const auto model = engine(40);
  const Ids prompt = random_tokens(170, model->config().vocab_size, 5);
  const Ids reply = random_tokens(9, model->config().vocab_size, 6);
  Walker exact(*model), walker(*model);
  const Logits expected = exact.whole(prompt);
  walker.whole(std::span(prompt).first(130));
  EXPECT_TRUE(same_bits(walker.shortcut(std::span(prompt).subspan(130), 17, 40), expected));
  EXPECT_TRUE(same_bits(walker.decode(reply), exact.decode(reply)));
}

TEST_P(PrefillShortcut, TokensTakenBackLeaveNoTrace) {
  const auto model = engine(20);
  const Ids prompt = random_tokens(150, model->config().vocab_size, 7);
  const Ids wrong = random_tokens(8, model->config().vocab_size, 8);
  const Ids reply = random_tokens(30, model->config().vocab_size, 9);
  Walker plain(*model);
  const Logits expected = plain.shortcut(prompt, 150, 20);
  const Logits after = plain.decode(reply);
  Walker walker(*model);
  walker.step(StepPart::lower, std::span(prompt).first(100), LogitsOf::none);
  walker.step(StepPart::lower, wrong, LogitsOf::none);
  ASSERT_TRUE(walker.truncate(100));
  EXPECT_TRUE(same_bits(walker.shortcut(std::span(prompt).subspan(100), 50, 20), expected));
  walker.whole(wrong);
  ASSERT_TRUE(walker.truncate(150));
  EXPECT_TRUE(same_bits(walker.decode(reply), after));
}

TEST_P(PrefillShortcut, AgreesWithTheReferenceOperationByOperation) {
  const auto model = engine(10, Backend::checked);
  const Ids prompt = random_tokens(45, model->config().vocab_size, 10);
  Walker walker(*model);
  walker.shortcut(prompt, 31, 10, shortcut_feeds_drafts(model->config()));
  walker.decode(random_tokens(2, model->config().vocab_size, 11));
  EXPECT_EQ(model->first_departure(), "");
}

// Everything below the model's engine, so that the caches can be looked at.
class CachesAfter {
 public:
  CachesAfter(const std::filesystem::path& folder, StepPart part, const Ids& tokens)
      : checkpoint_(test::open_checkpoint(folder)),
        caches_(config(), {.max_context = 256, .shortcut_tail = 16}) {
    auto weights = ModelWeights::bind(*checkpoint_);
    if (!weights) throw std::runtime_error("unreadable model");
    const ModelConstants constants = ModelConstants::make(config(), test::token_classes_of(folder));
    const auto count = static_cast<int64_t>(tokens.size());
    Ids positions, zeros(tokens.size(), 0), text(tokens.size(), -1);
    for (int32_t i = 0; i < count; ++i) positions.push_back(i);
    const Ids page = {0};
    const Shape rows{count};
    const StepShape shape{.tokens = count, .part = part};
    const StepInputs inputs{.rows = {.positions = {positions.data(), rows},
                                     .slots = {zeros.data(), rows},
                                     .first_rows = {zeros.data(), rows}},
                            .ids = {tokens.data(), rows},
                            .image_index = {text.data(), rows},
                            .output_rows = {nullptr, {0}},
                            .page_table = {page.data(), {1, 1}},
                            .window_starts = {zeros.data(), rows}};
    ThreadTeam team(2);
    cpu::Queue queue(team, test::supported_isas().back(),
                     Arena(plan_workspace(config(), *weights, constants, caches_, count, 0)));
    forward(queue, Context{config(), *weights, constants, caches_, shape, inputs});
  }

  const ModelConfig& config() const { return checkpoint_->config(); }
  const Caches& caches() const { return caches_; }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  Caches caches_;
};

template <class T>
bool same_bytes(View<T> a, View<T> b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

TEST_P(PrefillShortcut, LeavesTheLowerCachesOfAWholeStep) {
  const Ids tokens = random_tokens(93, 500, 12);
  const CachesAfter whole(folder(), StepPart::whole, tokens),
      lower(folder(), StepPart::lower, tokens);
  const ModelConfig& config = whole.config();
  const int64_t cut = shortcut_cut(config);
  for (int64_t source : config.kv_source_layers) {
    EXPECT_TRUE(same_bytes(whole.caches().latents(source), lower.caches().latents(source)));
    EXPECT_TRUE(same_bytes(whole.caches().index_keys(source), lower.caches().index_keys(source)));
    EXPECT_TRUE(same_bytes(whole.caches().open_rows(source), lower.caches().open_rows(source)));
  }
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    EXPECT_EQ(same_bytes(whole.caches().window(layer), lower.caches().window(layer)), layer < cut)
        << layer;
  }
  EXPECT_TRUE(same_bytes(whole.caches().token_classes(), lower.caches().token_classes()));
}

INSTANTIATE_TEST_SUITE_P(Models, PrefillShortcut, testing::Values("tiny-a", "tiny-b", "nano"),
                         [](const auto& info) {
                           return info.param == "nano"     ? "Nano"
                                  : info.param == "tiny-a" ? "TinyA"
                                                           : "TinyB";
                         });

// Generators: answers of one sequence after another.

constexpr int64_t kTail = 64;

class ShortcutGenerator : public testing::Test {
 protected:
  Result<GenerationResult> answer(Generator& generator, const Ids& prompt, PrefillMode mode,
                                  const GenerationCallbacks& callbacks = {}) const {
    GenerationParameters parameters;
    parameters.sampling.temperature = 0;
    parameters.max_tokens = 6;
    parameters.prefill = mode;
    return generator.generate(prompt, parameters, callbacks);
  }
  Generator open() const { return *Generator::open(*engine_); }
  Ids tokens(int64_t count, uint32_t seed) const {
    return random_tokens(count, engine_->config().vocab_size, seed);
  }

  std::unique_ptr<Engine> engine_ = test::open_engine(test::nano_path(), {.threads = 2,
                                                                          .max_sequences = 2,
                                                                          .max_context = 1024,
                                                                          .max_step_tokens = 50,
                                                                          .shortcut_tail = kTail});
};

TEST_F(ShortcutGenerator, AnswersShortPromptsAsInExactMode) {
  Generator exact = open(), quick = open();
  const Ids prompt = tokens(kTail, 1);
  EXPECT_EQ(answer(quick, prompt, PrefillMode::shortcut)->ids,
            answer(exact, prompt, PrefillMode::exact)->ids);
}

TEST_F(ShortcutGenerator, BuildsOnAnExactPrefixButNeverTheOtherWayRound) {
  Generator generator = open(), fresh = open();
  Ids prompt = tokens(200, 2);
  EXPECT_TRUE(answer(generator, prompt, PrefillMode::exact));
  Ids longer = prompt;
  for (int32_t id : tokens(100, 3)) longer.push_back(id);
  auto result = answer(generator, longer, PrefillMode::shortcut);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GE(result->reused_tokens, 199);
  // A tail of new tokens alone is cut off at the same place with and without the prefix.
  EXPECT_EQ(result->ids, answer(fresh, longer, PrefillMode::shortcut)->ids);

  result = answer(generator, longer, PrefillMode::exact);
  EXPECT_EQ(result->reused_tokens, 0);
  Generator other = std::move(fresh);
  EXPECT_EQ(result->ids, answer(other, longer, PrefillMode::exact)->ids);
}

TEST_F(ShortcutGenerator, GoesOnAfterAPrefillThatWasCancelled) {
  Generator generator = open(), fresh = open();
  const Ids prompt = tokens(300, 4);
  const Ids expected = answer(fresh, prompt, PrefillMode::shortcut)->ids;
  for (int steps : {2, 6}) {  // among the lower steps, and just before the upper one
    int asked = 0;
    const GenerationCallbacks callbacks{.cancelled = [&] { return asked++ == steps; }};
    auto result = answer(generator, tokens(3, 5), PrefillMode::exact);
    result = answer(generator, prompt, PrefillMode::shortcut, callbacks);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->finish, FinishReason::cancelled);
    result = answer(generator, prompt, PrefillMode::shortcut);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->reused_tokens, std::min<int64_t>(steps * 50, 299));
    EXPECT_EQ(result->ids, expected);
  }
  int asked = 0;
  const GenerationCallbacks callbacks{.cancelled = [&] { return asked++ == 3; }};
  EXPECT_TRUE(answer(generator, tokens(300, 6), PrefillMode::shortcut, callbacks));
  const auto result = answer(generator, tokens(300, 6), PrefillMode::exact);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->reused_tokens, 0);
}

TEST_F(ShortcutGenerator, NeedsAnEngineThatKeepsTheTail) {
  const auto plain = test::open_engine(test::nano_path(), {.threads = 1, .max_context = 64});
  Generator generator = *Generator::open(*plain);
  const auto result = answer(generator, {5}, PrefillMode::shortcut);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("shortcut tail"), std::string::npos);
}

std::string message(const Status& status) { return status ? "" : status.error().message; }

TEST(PrefillShortcutRequests, WhatCannotBeDoneIsSaidAndNothingChanges) {
  const auto model = test::open_engine(test::data_path("tiny-b"),
                                       {.threads = 1, .max_context = 256, .shortcut_tail = 8});
  const Ids prompt = random_tokens(20, 500, 13);
  const auto last = [&](size_t count) { return std::span(prompt).last(count); };
  Walker walker(*model);
  EXPECT_EQ(message(walker.try_step(StepPart::upper, last(1), LogitsOf::last)),
            "sequence 0: an upper step of 1 tokens, at most 0 can be resumed");
  EXPECT_NE(message(walker.try_step(StepPart::lower, prompt, LogitsOf::last)).find("no logits"),
            std::string::npos);
  walker.step(StepPart::lower, prompt, LogitsOf::none);
  EXPECT_NE(message(walker.try_step(StepPart::whole, last(1), LogitsOf::last))
                .find("upper layers are 20 tokens behind"),
            std::string::npos);
  EXPECT_NE(message(walker.try_step(StepPart::upper, last(9), LogitsOf::last))
                .find("at most 8 can be resumed"),
            std::string::npos);
  EXPECT_NE(message(walker.try_step(StepPart::upper, last(8), LogitsOf::all))
                .find("the logits of all tokens need whole steps"),
            std::string::npos);
  // Its draft head looks at layers 2 and 4; the cut is layer 5.
  EXPECT_NE(message(walker.try_step(StepPart::upper, last(8), LogitsOf::last, true))
                .find("cannot feed the draft head"),
            std::string::npos);
  EXPECT_EQ(message(walker.try_step(StepPart::upper, last(8), LogitsOf::last)), "");

  const auto plain = test::open_engine(test::data_path("tiny-b"), {.threads = 1});
  Walker exact(*plain);
  EXPECT_NE(message(exact.try_step(StepPart::lower, prompt, LogitsOf::none)).find("shortcut tail"),
            std::string::npos);
}

TEST(PrefillShortcutModels, AreRefusedWhereTheUpperLayersNeedMoreThanWindows) {
  ModelConfig config = *load_config(test::data_path("released"));
  EXPECT_EQ(shortcut_cut(config), 20);
  EXPECT_TRUE(check_shortcut(config));
  EXPECT_TRUE(shortcut_feeds_drafts(config));
  config.engram_layer_ids = {1, 20};
  EXPECT_TRUE(check_shortcut(config));
  config.engram_layer_ids = {1, 21};
  EXPECT_NE(message(check_shortcut(config)).find("has one at layer 21"), std::string::npos);
  config.engram_layer_ids = {1};
  config.candidate_source_layer = 14;
  EXPECT_NE(message(check_shortcut(config)).find("has it at layer 14"), std::string::npos);
  config.kv_source_layers.clear();
  EXPECT_NE(message(check_shortcut(config)).find("has none"), std::string::npos);
}

}  // namespace
}  // namespace cachalot
