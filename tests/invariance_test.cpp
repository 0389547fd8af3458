// No result depends on how a prompt was cut into steps, on the other sequences of a step, on the
// number of threads, or on tokens taken back: logits are equal to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <random>

#include "test_engine.h"

namespace cachalot {
namespace {

using Logits = std::vector<float>;

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(5 + random() % (static_cast<uint32_t>(vocabulary) - 5)));
  }
  return tokens;
}

Logits step(Engine& engine, int32_t sequence, std::span<const int32_t> tokens) {
  const SequenceStep part{.sequence = sequence, .tokens = tokens, .logits = LogitsOf::all};
  const auto result = engine.step({.sequences = {&part, 1}});
  if (!result) throw std::runtime_error(result.error().message);
  return Logits(result->logits.data, result->logits.data + result->logits.elements());
}

// Logits of every token, fed in chunks.
Logits run_chunked(Engine& engine, std::span<const int32_t> tokens, size_t chunk) {
  const int32_t sequence = *engine.open_sequence();
  Logits all;
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const Logits part =
        step(engine, sequence, tokens.subspan(first, std::min(chunk, tokens.size() - first)));
    all.insert(all.end(), part.begin(), part.end());
  }
  engine.close_sequence(sequence);
  return all;
}

::testing::AssertionResult bits_equal(const Logits& a, const Logits& b, int64_t vocabulary) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " vs " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      return ::testing::AssertionFailure()
             << "row " << i / static_cast<size_t>(vocabulary) << ": " << a[i] << " vs " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

struct Model {
  std::string name;
  std::filesystem::path folder;
  int64_t tokens;

  friend void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }
};

class Invariance : public testing::TestWithParam<Model> {
 protected:
  std::unique_ptr<Engine> engine(EngineOptions options = {}) const {
    if (options.threads == 0) options.threads = 2;
    options.max_context = 1024;
    return test::open_engine(GetParam().folder, options);
  }
  std::vector<int32_t> tokens(uint32_t seed = 1) const {
    return random_tokens(GetParam().tokens, vocabulary_, seed);
  }
  void SetUp() override { vocabulary_ = engine()->config().vocab_size; }

  int64_t vocabulary_ = 0;
};

TEST_P(Invariance, ChunkSizeChangesNoLogit) {
  for (Isa isa : test::supported_isas()) {
    const auto model = engine({.isa = isa});
    const auto prompt = tokens();
    const Logits whole = run_chunked(*model, prompt, prompt.size());
    for (size_t chunk : {1, 2, 3, 7}) {
      EXPECT_TRUE(bits_equal(whole, run_chunked(*model, prompt, chunk), vocabulary_))
          << name_of(isa) << ", chunks of " << chunk;
    }
  }
}

TEST_P(Invariance, ThreadCountChangesNoLogit) {
  for (Isa isa : test::supported_isas()) {
    const auto prompt = tokens();
    const Logits one = run_chunked(*engine({.threads = 1, .isa = isa}), prompt, prompt.size());
    for (int threads : {2, 3}) {
      const auto model = engine({.threads = threads, .isa = isa});
      EXPECT_TRUE(bits_equal(one, run_chunked(*model, prompt, prompt.size()), vocabulary_))
          << name_of(isa) << ", " << threads << " threads";
      EXPECT_TRUE(bits_equal(one, run_chunked(*model, prompt, 5), vocabulary_))
          << name_of(isa) << ", " << threads << " threads, chunks of 5";
    }
  }
}

// Prompts of 1, 2, 3, 8, 9 and 131 tokens grow together, one ends early as another joins.
TEST_P(Invariance, SequencesOfAnyLengthsDoNotSeeOneAnother) {
  const std::vector<int64_t> lengths = {1, 2, 3, 8, 9, 131};
  const auto model = engine({.max_sequences = 6});
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Logits> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    prompts.push_back(random_tokens(lengths[i] + 20, vocabulary_, 10 + static_cast<uint32_t>(i)));
    alone.push_back(run_chunked(*model, prompts[i], prompts[i].size()));
  }
  std::vector<int32_t> ids;
  std::vector<Logits> together(lengths.size());
  std::vector<size_t> done(lengths.size(), 0);
  for (size_t i = 0; i + 1 < lengths.size(); ++i) ids.push_back(*model->open_sequence());
  for (int round = 0;; ++round) {
    if (round == 5) ids.push_back(*model->open_sequence());  // the last prompt joins late
    std::vector<SequenceStep> parts;
    std::vector<size_t> owners;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (done[i] == prompts[i].size()) continue;
      const size_t first = done[i] == 0 ? static_cast<size_t>(lengths[i]) : 1;
      const size_t count = std::min(first, prompts[i].size() - done[i]);
      parts.push_back({.sequence = ids[i],
                       .tokens = std::span<const int32_t>(prompts[i]).subspan(done[i], count),
                       .logits = LogitsOf::all});
      owners.push_back(i);
      done[i] += count;
    }
    if (parts.empty() && ids.size() == lengths.size()) break;
    if (parts.empty()) continue;
    const auto result = model->step({.sequences = parts});
    ASSERT_TRUE(result) << result.error().message;
    const float* logits = result->logits.data;
    for (size_t p = 0; p < parts.size(); ++p) {
      const size_t values = parts[p].tokens.size() * static_cast<size_t>(vocabulary_);
      together[owners[p]].insert(together[owners[p]].end(), logits, logits + values);
      logits += values;
    }
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_TRUE(bits_equal(alone[i], together[i], vocabulary_)) << "prompt " << i;
  }
}

TEST_P(Invariance, TokensTakenBackLeaveNoTrace) {
  const auto model = engine({.rollback = 8});
  const auto prompt = tokens();
  const Logits plain = run_chunked(*model, prompt, prompt.size());
  for (int64_t wrong = 1; wrong <= 8; ++wrong) {
    const int32_t sequence = *model->open_sequence();
    Logits all;
    size_t done = 0;
    while (done < prompt.size()) {
      const size_t count = std::min<size_t>(11, prompt.size() - done);
      const auto part = std::span<const int32_t>(prompt).subspan(done, count);
      const Logits logits = step(*model, sequence, part);
      all.insert(all.end(), logits.begin(), logits.end());
      done += count;
      step(*model, sequence, random_tokens(wrong, vocabulary_, static_cast<uint32_t>(done)));
      const auto cut = model->truncate(sequence, static_cast<int64_t>(done));
      ASSERT_TRUE(cut) << cut.error().message;
    }
    model->close_sequence(sequence);
    EXPECT_TRUE(bits_equal(plain, all, vocabulary_)) << wrong << " tokens taken back";
  }
}

TEST_P(Invariance, AReusedSlotIsLikeAFreshOne) {
  const auto model = engine();
  const auto prompt = tokens(3);
  const std::vector<int32_t> single = {42};
  run_chunked(*model, std::span(prompt).first(50), 50);
  const Logits first = run_chunked(*model, single, 1);
  const Logits second = run_chunked(*model, single, 1);
  const Logits fresh = run_chunked(*engine(), single, 1);
  EXPECT_TRUE(bits_equal(fresh, first, vocabulary_));
  EXPECT_TRUE(bits_equal(fresh, second, vocabulary_));
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         testing::Values(Model{"TinyA", test::data_path("tiny-a"), 96},
                                         Model{"TinyB", test::data_path("tiny-b"), 96},
                                         Model{"Nano", test::nano_path(), 100}),
                         [](const auto& info) { return info.param.name; });

TEST(EngineRequests, WhatIsWrongIsSaidAndNothingChanges) {
  const auto model = test::open_engine(test::nano_path(), {.threads = 1, .max_context = 64});
  const int32_t sequence = *model->open_sequence();
  EXPECT_FALSE(model->open_sequence());
  const auto attempt = [&](int32_t id, std::vector<int32_t> tokens) {
    const SequenceStep part{.sequence = id, .tokens = tokens};
    const auto result = model->step({.sequences = {&part, 1}});
    return result ? std::string() : result.error().message;
  };
  EXPECT_NE(attempt(7, {1}).find("sequence 7 is not open"), std::string::npos);
  EXPECT_NE(attempt(sequence, {}).find("no tokens"), std::string::npos);
  EXPECT_NE(attempt(sequence, {1, -1}).find("token 1 is -1"), std::string::npos);
  EXPECT_NE(attempt(sequence, {2048}).find("0 to 2047"), std::string::npos);
  EXPECT_NE(attempt(sequence, std::vector<int32_t>(65, 5)).find("the context holds 64"),
            std::string::npos);
  EXPECT_FALSE(model->step({}));
  EXPECT_EQ(model->length(sequence), 0);
  EXPECT_EQ(attempt(sequence, std::vector<int32_t>(64, 5)), "");
  EXPECT_FALSE(model->truncate(sequence, 20));
  EXPECT_TRUE(model->truncate(sequence, 0));
  EXPECT_EQ(attempt(sequence, std::vector<int32_t>(64, 5)), "");
}

}  // namespace
}  // namespace cachalot
