// Drafts: the reference's proposals, and the promise that they never change a token.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <random>

#include "alternating_mask.h"
#include "answer_batch.h"
#include "draft_examples.h"
#include "engine/forwarding_engine.h"
#include "test_engine.h"

namespace cachalot {
namespace {

using Example = test::DraftExample;

std::vector<Example> examples(size_t most = SIZE_MAX) { return test::draft_examples(most); }

std::vector<int32_t> drafts_after(Engine& engine, const Example& example, size_t at) {
  const int32_t sequence = *engine.open_sequence();
  std::vector<int32_t> tokens = example.prompt;
  tokens.insert(tokens.end(), example.completion.begin(),
                example.completion.begin() + static_cast<int64_t>(at));
  for (size_t first = 0; first < tokens.size(); first += 512) {
    const SequenceStep part{
        .sequence = sequence,
        .tokens = std::span(tokens).subspan(first, std::min<size_t>(512, tokens.size() - first)),
        .logits = LogitsOf::none};
    const auto step = engine.step({.sequences = {&part, 1}, .draft_taps = true});
    if (!step) throw std::runtime_error(step.error().message);
  }
  const DraftRequest request{.sequence = sequence, .anchor = example.completion[at]};
  const auto drafts = engine.draft({&request, 1});
  if (!drafts) throw std::runtime_error(drafts.error().message);
  std::vector<int32_t> result(drafts->tokens.data, drafts->tokens.data + drafts->tokens.elements());
  engine.close_sequence(sequence);
  return result;
}

// On FP8 tensor cores the golden's authors let a draft's row differ in two of five.
constexpr double kEqualDrafts = test::kTestBackend == Backend::cuda ? 0.6 : 0.98;

TEST(Drafts, AreThoseOfTheReference) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2});
  int tokens = 0, equal_tokens = 0, firsts = 0, equal_firsts = 0;
  for (const Example& example : examples()) {
    for (size_t c = 0; c < example.cycles.size(); ++c) {
      const test::DraftCycle& cycle = example.cycles[c];
      const std::vector<int32_t> found = drafts_after(*engine, example, cycle.at);
      ASSERT_EQ(found.size(), cycle.draft.size());
      for (size_t i = 0; i < found.size(); ++i) equal_tokens += found[i] == cycle.draft[i];
      tokens += static_cast<int>(found.size());
      if (c > 0) continue;
      ++firsts;
      equal_firsts += found == cycle.draft;
    }
  }
  EXPECT_GE(equal_tokens, kEqualDrafts * tokens) << equal_tokens << " of " << tokens;
  EXPECT_GE(equal_firsts, kEqualDrafts * firsts) << equal_firsts << " of " << firsts;
}

GenerationParameters parameters_of(double temperature, uint64_t seed = 0) {
  GenerationParameters parameters;
  parameters.sampling.temperature = temperature;
  parameters.sampling.seed = seed;
  parameters.max_tokens = 96;
  parameters.end_tokens = {1};
  return parameters;
}

std::vector<DraftParameters> every_depth() {
  std::vector<DraftParameters> all = {{.mode = DraftMode::automatic, .depth = 0}};
  for (int64_t depth = 1; depth <= 5; ++depth) {
    all.push_back({.mode = DraftMode::fixed, .depth = depth});
  }
  return all;
}

// The second time a prompt is in the caches.
void expect_plain_text(const std::vector<GenerationParameters>& settings,
                       const std::vector<DraftParameters>& depths) {
  const auto engine = test::open_engine(
      test::nano_path(),
      {.threads = 2, .max_sequences = 1 + std::ssize(depths), .max_context = 1024});
  Generator plain = *Generator::open(*engine);
  std::vector<Generator> drafting;
  for (const DraftParameters& drafts : depths) {
    drafting.push_back(*Generator::open(*engine, drafts));
  }
  int64_t drafted = 0;
  for (const Example& example : examples(24)) {
    if (example.prompt.size() > 300) continue;
    for (const GenerationParameters& parameters : settings) {
      const auto expected = plain.generate(example.prompt, parameters);
      ASSERT_TRUE(expected) << expected.error().message;
      for (size_t d = 0; d < drafting.size(); ++d) {
        for (int round = 0; round < 2; ++round) {
          const auto found = drafting[d].generate(example.prompt, parameters);
          ASSERT_TRUE(found) << found.error().message;
          ASSERT_EQ(found->ids, expected->ids) << example.family << ", depth " << d;
          EXPECT_EQ(found->finish, expected->finish);
          drafted += found->drafted;
        }
      }
    }
  }
  EXPECT_GT(drafted, 100);
}

TEST(Drafts, ChangeNoGreedyTokenAtAnyDepth) {
  expect_plain_text({parameters_of(0)}, every_depth());
}

TEST(Drafts, ChangeNoSampledToken) {
  GenerationParameters penalized = parameters_of(0.7, 11);
  penalized.sampling.top_p = 0.9;
  penalized.sampling.repetition_penalty = 1.2;
  penalized.sampling.logit_bias = {{263, 1.5}};
  expect_plain_text(
      {parameters_of(0.8, 7), parameters_of(1.5, 3), penalized},
      {{.mode = DraftMode::automatic, .depth = 0}, {.mode = DraftMode::fixed, .depth = 3}});
}

// As a grammar and the other answers to a prompt (n > 1) use them.
TEST(Drafts, ChangeNoTokenUnderAMaskWhateverTheChoice) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  Generator plain = *Generator::open(*engine);
  Generator drafting = *Generator::open(*engine, {.mode = DraftMode::fixed, .depth = 4});
  const std::vector<Example> prompts = examples(2);
  for (const Example& example : prompts) {
    for (uint32_t choice = 0; choice < 3; ++choice) {
      test::AlternatingMask mask(engine->config().vocab_size), same(engine->config().vocab_size);
      GenerationParameters parameters = parameters_of(choice == 0 ? 0 : 1, 9);
      parameters.choice = choice;
      parameters.max_tokens = 24;
      parameters.sampling.logit_bias = {{1, -100.0}, {16, 2.0}};
      parameters.mask = &mask;
      const auto expected = plain.generate(example.prompt, parameters);
      ASSERT_TRUE(expected) << expected.error().message;
      parameters.mask = &same;
      const auto found = drafting.generate(example.prompt, parameters);
      ASSERT_TRUE(found) << found.error().message;
      EXPECT_EQ(found->ids, expected->ids);
      EXPECT_EQ(same.accepted(), found->ids);
      EXPECT_GT(found->drafted, 0);
    }
  }
}

TEST(Drafts, GainWhatTheyGainInTheReference) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2});
  Generator generator = *Generator::open(*engine, {.mode = DraftMode::fixed, .depth = 5});
  struct Count {
    double tokens = 0, cycles = 0, expected_tokens = 0, expected_cycles = 0;
  };
  std::map<std::string, Count> families;
  int compared = 0, same_text = 0;
  for (const Example& example : examples()) {
    GenerationParameters parameters = parameters_of(0);
    parameters.max_tokens = static_cast<int64_t>(example.completion.size());
    const auto found = generator.generate(example.prompt, parameters);
    ASSERT_TRUE(found) << found.error().message;
    ++compared;
    if (found->ids != example.completion) continue;  // a close choice fell the other way
    ++same_text;
    Count& count = families[example.family];
    count.tokens += static_cast<double>(found->ids.size()) - 1;
    count.cycles += static_cast<double>(found->cycles);
    count.expected_tokens += static_cast<double>(example.completion.size()) - 1;
    count.expected_cycles += static_cast<double>(example.cycles.size());
  }
  EXPECT_GE(same_text, 0.95 * compared);
  // 3 %, or one cycle where there are so few that one more is more than that: a draft between two
  // close choices may fall the other way on another instruction set.
  for (const auto& [family, count] : families) {
    EXPECT_EQ(count.tokens, count.expected_tokens) << family;
    EXPECT_NEAR(count.cycles, count.expected_cycles, std::max(1.0, 0.03 * count.expected_cycles))
        << family;
  }
}

// The same, text by text as the reference wrote it, so that none is left out, and flat 3 %. Two
// correct engines differ by about 1 % of a logit (models/nano/README.md): a draft that is this
// close to the reference's is the reference's.
struct Gains {
  std::map<std::string, std::pair<double, double>> cycles;  // by family: ours, the reference's
  std::map<std::string, double> tokens;
};

void add_gains(Engine& engine, Gains& gains) {
  for (const Example& example : examples()) {
    const auto& text = example.completion;
    std::map<size_t, std::vector<int32_t>> reference;
    for (const test::DraftCycle& cycle : example.cycles) reference[cycle.at] = cycle.draft;
    const int32_t sequence = *engine.open_sequence();
    std::vector<int32_t> unseen = example.prompt;
    for (size_t at = 0; at + 1 < text.size();) {
      for (size_t first = 0; first < unseen.size(); first += 512) {
        const SequenceStep part{.sequence = sequence,
                                .tokens = std::span(unseen).subspan(
                                    first, std::min<size_t>(512, unseen.size() - first)),
                                .logits = LogitsOf::none};
        ASSERT_TRUE(engine.step({.sequences = {&part, 1}, .draft_taps = true}));
      }
      const auto close_to_reference = [&](int64_t place, std::span<const float> logits,
                                          int32_t best) {
        const auto known = reference.find(at);
        if (known == reference.end()) return best;
        const int32_t other = known->second[static_cast<size_t>(place)];
        const float top = logits[static_cast<size_t>(best)];
        return logits[static_cast<size_t>(other)] >= top - 0.01f * std::abs(top) ? other : best;
      };
      const DraftRequest request{
          .sequence = sequence, .anchor = text[at], .choose = close_to_reference};
      const auto drafts = engine.draft({&request, 1});
      ASSERT_TRUE(drafts) << drafts.error().message;
      size_t gain = 1;
      for (int64_t i = 0; i < drafts->tokens.extent(1) && at + gain < text.size(); ++i, ++gain) {
        if (drafts->tokens.data[i] != text[at + gain]) break;
      }
      gain = std::min(gain, text.size() - 1 - at);
      unseen.assign(text.begin() + static_cast<ptrdiff_t>(at),
                    text.begin() + static_cast<ptrdiff_t>(at + gain));
      at += gain;
      gains.cycles[example.family].first += 1;
    }
    engine.close_sequence(sequence);
    gains.cycles[example.family].second += static_cast<double>(example.cycles.size());
    gains.tokens[example.family] += static_cast<double>(text.size()) - 1;
  }
}

// Over all the ways this machine computes: a family has as few as 24 cycles, so that one near tie,
// which another order of additions decides otherwise, is more than the bound.
TEST(Drafts, GainAsManyTokensPerCycleAsInTheReference) {
  Gains gains;
  for (Isa isa : test::supported_isas()) {
    const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .isa = isa});
    add_gains(*engine, gains);
    if (test::kTestBackend == Backend::cuda) break;
  }
  for (const auto& [family, count] : gains.cycles) {
    const double expected = gains.tokens[family] / count.second;
    EXPECT_NEAR(gains.tokens[family] / count.first, expected, 0.03 * expected)
        << family << ", " << count.first << " cycles, the reference " << count.second;
  }
}

// An engine whose drafts are not what the draft head says.
class AdversarialEngine final : public ForwardingEngine {
 public:
  enum class Drafts { random, wrong, right };

  AdversarialEngine(Engine& inner, Drafts drafts) : ForwardingEngine(inner), drafts_(drafts) {}

  // What the target will choose from the anchor's place on, for `right` and `wrong`.
  void expect(int32_t sequence, int64_t start, std::vector<int32_t> tokens) {
    truth_[sequence] = {start, std::move(tokens)};
  }

  Result<DraftResult> draft(std::span<const DraftRequest> requests, Observer* observer) override {
    CACHALOT_TRY(DraftResult result, inner().draft(requests, observer));
    const int64_t block = result.tokens.extent(1);
    tokens_.assign(requests.size() * static_cast<size_t>(block), 0);
    for (size_t r = 0; r < requests.size(); ++r) {
      const auto& [start, truth] = truth_[requests[r].sequence];
      for (int64_t i = 0; i < block; ++i) {
        const int64_t at = inner().length(requests[r].sequence) + 1 + i - start;
        const int32_t right = at < std::ssize(truth) ? truth[static_cast<size_t>(at)] : 5;
        int32_t& token = tokens_[r * static_cast<size_t>(block) + static_cast<size_t>(i)];
        if (drafts_ == Drafts::random) token = static_cast<int32_t>(random_() % 2048);
        if (drafts_ == Drafts::right) token = right;
        if (drafts_ == Drafts::wrong) token = (right + 1) % 2048;
      }
    }
    result.tokens = {tokens_.data(), result.tokens.shape};
    return result;
  }

 private:
  Drafts drafts_;
  std::map<int32_t, std::pair<int64_t, std::vector<int32_t>>> truth_;
  std::vector<int32_t> tokens_;
  std::mt19937 random_;
};

// Several answers decoded together, each with its own depth.
TEST(Drafts, ChangeNoTokenInABatchEvenWhenTheyAreAdversarial) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 9});
  std::vector<Example> prompts;
  for (Example& example : examples()) {
    if (example.prompt.size() < 200 && prompts.size() < 8) prompts.push_back(std::move(example));
  }
  std::vector<test::BatchAnswer> answers;
  std::vector<std::vector<int32_t>> plain;
  {
    Generator generator = *Generator::open(*engine);
    for (size_t i = 0; i < prompts.size(); ++i) {
      plain.push_back(generator.generate(prompts[i].prompt, parameters_of(0))->ids);
      answers.push_back(
          {.prompt = prompts[i].prompt,
           .parameters = parameters_of(0),
           .drafts = {.mode = DraftMode::fixed, .depth = 1 + static_cast<int64_t>(i) % 5}});
    }
  }
  using Drafts = AdversarialEngine::Drafts;
  for (const Drafts kind : {Drafts::random, Drafts::wrong, Drafts::right}) {
    AdversarialEngine liar(*engine, kind);
    test::AnswerBatch batch(liar, std::ssize(answers));
    for (size_t i = 0; i < answers.size(); ++i) {
      liar.expect(batch.sequence(i), std::ssize(prompts[i].prompt), plain[i]);
    }
    const test::BatchResult result = batch.decode(answers);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(result.ids[i], plain[i]) << "prompt " << i << ", kind " << static_cast<int>(kind);
      if (kind == Drafts::right) {  // as few cycles as the depth allows
        const int64_t tokens = std::ssize(plain[i]) - 1, gain = 1 + answers[i].drafts.depth;
        EXPECT_EQ(result.counts[i].cycles, (tokens + gain - 1) / gain) << "prompt " << i;
      }
      if (kind == Drafts::wrong) {
        EXPECT_EQ(result.counts[i].accepted, 0);
      }
    }
  }
}

// Sampled, cut, penalised, masked and drafted for, each way often enough that several are drawn
// side by side.
std::vector<test::BatchAnswer> answers_of_every_kind(const std::vector<Example>& prompts,
                                                     std::vector<test::AlternatingMask>& masks) {
  std::vector<test::BatchAnswer> answers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerationParameters parameters = parameters_of(i % 5 == 0 ? 0 : 0.9, i);
    SamplingParameters& sampling = parameters.sampling;
    parameters.max_tokens = 40;
    if (i % 5 == 1) sampling.top_p = 0.8;
    if (i % 5 == 2) sampling.top_k = 30;
    if (i % 5 == 3) sampling.min_p = 0.1;
    if (i % 2 == 1) sampling.repetition_penalty = 1.1;
    if (i % 5 == 4) parameters.mask = &masks[i];
    const auto method = i % 3 == 1 ? DraftMethod::probabilistic : DraftMethod::greedy;
    DraftParameters drafts{.mode = DraftMode::fixed, .depth = 3, .method = method};
    if (i % 3 == 0) drafts = {};
    answers.push_back({.prompt = prompts[i].prompt, .parameters = parameters, .drafts = drafts});
  }
  return answers;
}

TEST(Draws, OfABatchAreTheSameForAnyNumberOfThreads) {
  std::vector<Example> prompts;
  for (Example& example : examples()) {
    if (example.prompt.size() < 200 && prompts.size() < 10) prompts.push_back(std::move(example));
  }
  std::vector<std::vector<int32_t>> expected;
  for (const int threads : {1, 2, 5}) {
    const auto engine =
        test::open_engine(test::nano_path(), {.threads = threads, .max_sequences = 10});
    std::vector<test::AlternatingMask> masks(prompts.size(),
                                             test::AlternatingMask(engine->config().vocab_size));
    test::AnswerBatch batch(*engine, std::ssize(prompts));
    const test::BatchResult result = batch.decode(answers_of_every_kind(prompts, masks));
    if (expected.empty()) expected = result.ids;
    EXPECT_EQ(result.ids, expected) << threads << " threads";
  }
}

TEST(Draws, AreSharedOutEachOnce) {
  for (const int threads : {1, 3}) {
    const auto engine = test::open_engine(test::nano_path(), {.threads = threads});
    for (const int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> called(static_cast<size_t>(count));
      engine->for_each(count, [&](int64_t i) { ++called[static_cast<size_t>(i)]; });
      for (const auto& times : called) EXPECT_EQ(times, 1);
    }
  }
}

std::vector<float> copy(View<const float> view) { return {view.data, view.data + view.elements()}; }
std::vector<int32_t> copy(View<const int32_t> view) {
  return {view.data, view.data + view.elements()};
}

// One call for both gives what two give, to the bit: several sequences, one of them without drafts,
// and a part of a prompt beside them.
TEST(Drafts, MayBeCheckedBeforeTheyAreSeen) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 8});
  const std::vector<Example> texts = examples(4);
  // Every shape of step three times: a device runs it, captures it, and then starts what it noted.
  for (int round = 0; round < 3; ++round) {
    const auto open = [&] {
      std::vector<int32_t> opened;
      for (size_t i = 0; i < 4; ++i) {
        opened.push_back(*engine->open_sequence());
        if (i == 3) break;
        const auto prompt = std::span(texts[i].prompt);
        for (size_t first = 0; first < prompt.size(); first += 512) {
          const SequenceStep part{
              .sequence = opened.back(),
              .tokens = prompt.subspan(first, std::min<size_t>(512, prompt.size() - first))};
          EXPECT_TRUE(engine->step({.sequences = {&part, 1}, .draft_taps = true}));
        }
      }
      return opened;
    };
    const std::vector<int32_t> first = open(), second = open();
    const std::span<const int32_t> prompt =
        std::span(texts[3].prompt).first(std::min<size_t>(20, texts[3].prompt.size()));
    const int64_t depths[] = {5, 0, 2, 0};
    const auto anchor = [&](size_t i) { return texts[i].completion[round]; };

    const DraftRequest asked[] = {{.sequence = first[0], .anchor = anchor(0)},
                                  {.sequence = first[2], .anchor = anchor(2)}};
    const auto drafts = engine->draft(asked);
    ASSERT_TRUE(drafts) << drafts.error().message;
    const std::vector<int32_t> tokens = copy(drafts->tokens);
    const std::vector<float> confidence = copy(drafts->confidence);
    std::vector<std::vector<int32_t>> rows = {{anchor(0)}, {anchor(1)}, {anchor(2)}};
    rows[0].insert(rows[0].end(), tokens.begin(), tokens.begin() + 5);
    rows[2].insert(rows[2].end(), tokens.begin() + 5, tokens.begin() + 7);
    rows.emplace_back(prompt.begin(), prompt.end());
    std::vector<SequenceStep> parts;
    for (size_t i = 0; i < 4; ++i) {
      parts.push_back({.sequence = first[i], .tokens = rows[i], .logits = LogitsOf::all});
    }
    const auto seen = engine->step({.sequences = parts, .draft_taps = true});
    ASSERT_TRUE(seen) << seen.error().message;
    const std::vector<float> logits = copy(seen->logits);
    const std::vector<int32_t> best = copy(seen->best);

    for (size_t i = 0; i < 4; ++i) {
      parts[i].sequence = second[i];
      if (i < 3) parts[i].tokens = std::span(rows[i]).first(1);
    }
    const auto unseen = engine->draft_and_step({.sequences = parts, .draft_taps = true}, depths);
    ASSERT_TRUE(unseen) << unseen.error().message;
    EXPECT_EQ(unseen->tokens, tokens);
    EXPECT_EQ(unseen->confidence, confidence);
    EXPECT_TRUE(copy(unseen->step.logits) == logits);
    EXPECT_EQ(copy(unseen->step.best), best);
    EXPECT_GE(unseen->draft_seconds, 0);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(engine->length(second[i]), engine->length(first[i]));
      engine->close_sequence(first[i]);
      engine->close_sequence(second[i]);
    }
  }
}

TEST(Drafts, ThatAreNotSeenAreRefusedAsOthersAre) {
  const auto engine =
      test::open_engine(test::nano_path(), {.threads = 1, .max_context = 64, .max_step_tokens = 8});
  const int32_t sequence = *engine->open_sequence();
  const std::vector<int32_t> text(8, 65);
  const auto expect_refused = [&](std::span<const int32_t> tokens, int64_t drafts) {
    const int64_t before = engine->length(sequence);
    const SequenceStep part{.sequence = sequence, .tokens = tokens};
    EXPECT_FALSE(
        engine->draft_and_step({.sequences = {&part, 1}, .draft_taps = true}, {&drafts, 1}));
    EXPECT_EQ(engine->length(sequence), before);
  };
  expect_refused({}, 1);
  expect_refused(text, 1);  // more than a step takes
  const std::vector<int32_t> unknown = {5000};
  expect_refused(unknown, 1);
  for (int step = 0; step < 7; ++step) {
    const SequenceStep part{.sequence = sequence, .tokens = text};
    ASSERT_TRUE(engine->step({.sequences = {&part, 1}, .draft_taps = true}));
  }
  expect_refused(std::span(text).first(4), 5);  // beyond the context
}

// With the best tokens alone asked for, these are there, and logits only of rows that mean nothing.
TEST(Drafts, BestTokensAreThoseOfTheLogits) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  const std::vector<int32_t> text = examples(1)[0].prompt;
  const int32_t all = *engine->open_sequence(), best_only = *engine->open_sequence();
  for (int round = 0; round < 3; ++round) {
    SequenceStep part{.sequence = all, .tokens = std::span(text).first(6), .logits = LogitsOf::all};
    const auto full = engine->step({.sequences = {&part, 1}});
    ASSERT_TRUE(full) << full.error().message;
    std::vector<int32_t> expected;
    for (int64_t row = 0; row < 6; ++row) {
      const float* logits = full->logits.row(row);
      expected.push_back(
          static_cast<int32_t>(std::max_element(logits, logits + full->logits.extent(1)) - logits));
    }
    EXPECT_EQ(copy(full->best), expected);
    part.sequence = best_only;
    part.best_only = true;
    const auto brief = engine->step({.sequences = {&part, 1}});
    ASSERT_TRUE(brief) << brief.error().message;
    EXPECT_EQ(copy(brief->best), expected);
  }
}

TEST(Drafts, AreRefusedWhereThereIsNoDraftHeadOrNoSuchDepth) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 1});
  const auto deep = Generator::open(*engine, {.mode = DraftMode::fixed, .depth = 6});
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("expected 1 to 5, found 6"), std::string::npos);
  const int32_t sequence = *engine->open_sequence();
  const DraftRequest bad{.sequence = sequence, .anchor = 5000};
  EXPECT_FALSE(engine->draft({&bad, 1}));
  const DraftRequest closed{.sequence = sequence + 1, .anchor = 5};
  EXPECT_FALSE(engine->draft({&closed, 1}));
  EXPECT_FALSE(engine->draft({}));
}

}  // namespace
}  // namespace cachalot
