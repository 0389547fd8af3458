// A sequence restored from a saved state computes the bits it would have computed without (spec:
// model, 10.3), whatever length it was saved at and whatever became of the saved one.
#include <gtest/gtest.h>

#include <random>

#include "test_engine.h"
#include "walker.h"

namespace cachalot {
namespace {

using test::Ids;
using test::Walker;

class SavedState : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine(EngineOptions options = {}) const {
    options.threads = 1;
    options.max_context = 1024;
    options.max_sequences = 6;
    const bool nano = GetParam() == "nano";
    return test::open_engine(nano ? test::nano_path() : test::data_path(GetParam()), options);
  }
  static Ids text(const Engine& engine, int64_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    Ids tokens;
    for (int64_t i = 0; i < count; ++i) {
      const auto words = static_cast<uint32_t>(engine.config().vocab_size - 5);
      tokens.push_back(static_cast<int32_t>(5 + random() % words));
    }
    return tokens;
  }
};

class SavedShortcutState : public SavedState {};

std::span<const int32_t> part(const Ids& tokens, int64_t first, int64_t count) {
  return std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

// One sequence records what follows each of its lengths; another is saved at every one, and what is
// restored must go on with the same bits.
TEST_P(SavedState, ContinuesAsIfNeverInterruptedFromEveryLength) {
  const auto model = engine();
  const int64_t page = model->pages().tokens, last = page + 20;
  const int64_t stride = GetParam() == "nano" ? 41 : GetParam() == "tiny-a" ? 1 : 7;
  const Ids tokens = text(*model, last + 3);
  std::vector<Walker::Outcome> expected;
  {
    Walker plain(*model);
    for (int64_t at = 0; at < last + 2; ++at) {
      expected.push_back(plain.outcome(part(tokens, at, 1)));
    }
  }
  Walker walker(*model);
  for (int64_t length = 1; length <= last; ++length) {
    walker.append(part(tokens, length - 1, 1), true);
    const bool border = length % page <= 2 || length % page >= page - 2;
    if (!border && length % stride != 0) continue;
    SCOPED_TRACE(length);
    const auto saved = *model->save(walker.sequence());
    ASSERT_EQ(saved->length(), length);
    ASSERT_EQ(std::ssize(saved->pages()), length / page);
    Walker restored(*model, *saved);
    for (int64_t at = length; at < length + 2; ++at) {
      ASSERT_EQ(restored.outcome(part(tokens, at, 1)), expected[static_cast<size_t>(at)]) << at;
    }
  }
}

// As far back as `rollback`, over a page's border, with drafts rejected before the state was saved.
TEST_P(SavedState, CanBeCutBackAsTheSavedSequenceCould) {
  const auto model = engine();
  const Ids tokens = text(*model, 600), wrong = text(*model, 600, 2);
  const int64_t page = model->pages().tokens, rollback = model->options().rollback;
  std::vector<int64_t> lengths = {40, page + 1};
  if (GetParam() != "nano") lengths.insert(lengths.end(), {5, page, page + rollback - 1});
  for (const int64_t length : lengths) {
    for (const int64_t rejected : {int64_t{0}, int64_t{3}}) {
      Walker walker(*model);
      walker.append(part(tokens, 0, length), true);
      if (rejected > 0) {
        walker.append(part(wrong, 0, rejected), true);
        ASSERT_TRUE(model->truncate(walker.sequence(), length));
      }
      const auto saved = *model->save(walker.sequence());
      walker.clear();
      for (const int64_t back : {int64_t{1}, rollback - rejected, rollback - rejected + 1}) {
        if (back > length) continue;
        SCOPED_TRACE(fmt::format("{} tokens, {} rejected, {} back", length, rejected, back));
        Walker restored(*model, *saved);
        const Status cut = model->truncate(restored.sequence(), length - back);
        EXPECT_EQ(cut.has_value(), back <= rollback - rejected || length - back == 0 ||
                                       length + rejected <= rollback);
        if (!cut || length == back) continue;
        Walker plain(*model);
        plain.append(part(tokens, 0, length - back), true);
        EXPECT_EQ(restored.outcome(part(wrong, 0, 12)), plain.outcome(part(wrong, 0, 12)));
      }
    }
  }
}

// Three sequences from one state, each with text of its own, in steps together; the state and a
// fourth one from it are as before. Cut over a page's border, they write into a page they share.
TEST_P(SavedState, ServesManySequencesThatGoTheirOwnWays) {
  const auto model = engine();
  const Ids tokens = text(*model, 600);
  const int64_t page = model->pages().tokens;
  for (const int64_t back : {int64_t{0}, int64_t{4}}) {
    Walker source(*model);
    source.append(part(tokens, 0, page + 2), true);
    const auto saved = *model->save(source.sequence());
    ASSERT_TRUE(model->truncate(source.sequence(), page + 2 - back));
    std::vector<std::unique_ptr<Walker>> walkers;
    std::vector<SequenceStep> steps;
    std::vector<Ids> texts;
    for (uint32_t i = 0; i < 3; ++i) texts.push_back(text(*model, 20, 10 + i));
    for (size_t i = 0; i < 3; ++i) {
      walkers.push_back(std::make_unique<Walker>(*model, *saved));
      ASSERT_TRUE(model->truncate(walkers[i]->sequence(), page + 2 - back));
      steps.push_back({.sequence = walkers[i]->sequence(), .tokens = texts[i]});
    }
    steps.push_back({.sequence = source.sequence(), .tokens = texts[0]});
    const auto result = model->step({.sequences = steps, .draft_taps = true});
    ASSERT_TRUE(result) << result.error().message;
    std::vector<std::vector<float>> rows;
    for (int64_t i = 0; i < 4; ++i) {
      rows.emplace_back(result->logits.row(i), result->logits.row(i) + model->config().vocab_size);
    }
    EXPECT_EQ(rows[3], rows[0]);
    for (size_t i = 0; i < 3; ++i) {
      walkers[i]->clear();
      Walker plain(*model);
      plain.append(part(tokens, 0, page + 2 - back), true);
      EXPECT_EQ(plain.append(texts[i], true), rows[i]) << i;
    }
    Walker restored(*model, *saved), plain(*model);
    plain.append(part(tokens, 0, page + 2), true);
    EXPECT_EQ(restored.outcome(part(tokens, page + 2, 5)),
              plain.outcome(part(tokens, page + 2, 5)));
  }
}

// Between lower steps and the upper one, and after it with windows that start late.
TEST_P(SavedShortcutState, HoldsThePrefillShortcutsPlace) {
  const auto model = engine({.shortcut_tail = 0});
  const Ids tokens = text(*model, 600);
  const int64_t tail = *model->options().shortcut_tail;
  for (const int64_t length : {tail - 1, tail + 5, int64_t{300}}) {
    SCOPED_TRACE(length);
    const int64_t count = std::min(tail, length);
    Walker plain(*model);
    plain.lower(part(tokens, 0, length));
    const auto behind = *model->save(plain.sequence());
    const auto expected = plain.upper(part(tokens, length - count, count));
    const auto done = *model->save(plain.sequence());
    EXPECT_LT(done->bytes(), behind->bytes());
    const auto after = plain.outcome(part(tokens, length, 20));
    plain.clear();
    Walker lagging(*model, *behind);
    EXPECT_FALSE(lagging.try_append(part(tokens, length, 1), true));
    EXPECT_EQ(lagging.upper(part(tokens, length - count, count)), expected);
    EXPECT_EQ(lagging.outcome(part(tokens, length, 20)), after);
    Walker restored(*model, *done);
    EXPECT_EQ(restored.outcome(part(tokens, length, 20)), after);
  }
}

std::string model_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, SavedState, testing::Values("nano", "tiny-a", "tiny-b"),
                         model_name);
// Not tiny-b: its draft head looks below the cut.
INSTANTIATE_TEST_SUITE_P(Models, SavedShortcutState, testing::Values("nano", "tiny-a"), model_name);

TEST(SavedState, WorksOnTheReferenceAndCheckedBackends) {
  for (const Backend backend : {Backend::reference, Backend::checked}) {
    const auto model = test::open_engine(
        test::data_path("tiny-a"),
        {.backend = backend, .threads = 1, .max_sequences = 2, .max_context = 512});
    const Ids tokens = {5, 17, 9, 300, 41, 8, 77, 6, 120, 33, 14, 250, 19, 7, 90, 61, 400, 22, 31};
    Walker plain(*model);
    plain.append(part(tokens, 0, 15), true);
    const auto saved = *model->save(plain.sequence());
    const auto expected = plain.outcome(part(tokens, 15, 4));
    Walker restored(*model, *saved);
    EXPECT_EQ(restored.outcome(part(tokens, 15, 4)), expected);
    EXPECT_EQ(model->first_departure(), "");
  }
}

class CachePages : public testing::Test {
 protected:
  static std::unique_ptr<Engine> engine(int64_t pages, int64_t sequences = 3) {
    return test::open_engine(
        test::data_path("tiny-a"),
        {.threads = 2, .max_sequences = sequences, .max_context = 1024, .cache_pages = pages});
  }
  static Ids tokens(int64_t count) { return Ids(static_cast<size_t>(count), 7); }
};

TEST_F(CachePages, AreAsManyAsAskedForOrAsAllSequencesTake) {
  EXPECT_EQ(engine(0)->pages().total, 12);
  const auto model = engine(5);
  const PageUse use = model->pages();
  EXPECT_EQ(use.total, 5);
  EXPECT_EQ(use.free, 5);
  EXPECT_EQ(use.tokens, 256);
  EXPECT_GT(use.bytes, 0);
  EXPECT_FALSE(
      make_engine(test::open_checkpoint(test::data_path("tiny-a")), {}, {.cache_pages = -1}));
}

TEST_F(CachePages, AllComeBack) {
  const auto model = engine(8);
  {
    Walker a(*model);
    a.append(tokens(300), false);
    EXPECT_EQ(model->pages().free, 6);
    auto saved = *model->save(a.sequence());  // one page shared, the other one copied
    EXPECT_EQ(model->pages().free, 6);
    Walker b(*model, *saved), c(*model, *saved);
    EXPECT_EQ(model->pages().free, 4);
    EXPECT_EQ(model->pages_for(b.sequence(), 212), 0);
    EXPECT_EQ(model->pages_for(b.sequence(), 213), 1);
    ASSERT_TRUE(model->truncate(a.sequence(), 0));
    EXPECT_EQ(model->pages().free, 5);
    ASSERT_TRUE(model->truncate(b.sequence(), 0));
    ASSERT_TRUE(model->truncate(c.sequence(), 0));
    EXPECT_EQ(model->pages().free, 7);
    const std::shared_ptr<const SavedSequence> another = saved;
    saved.reset();
    EXPECT_EQ(model->pages().free, 7);
  }
  EXPECT_EQ(model->pages().free, 8);
}

TEST_F(CachePages, CutOffBecomeFree) {
  const auto model = engine(4);
  Walker walker(*model);
  walker.append(tokens(260), false);
  EXPECT_EQ(model->pages().free, 2);
  ASSERT_TRUE(model->truncate(walker.sequence(), 256));
  EXPECT_EQ(model->pages().free, 3);
  const auto saved = *model->save(walker.sequence());
  EXPECT_EQ(model->pages_for(walker.sequence(), 1), 1);
  ASSERT_TRUE(model->truncate(walker.sequence(), 254));
  EXPECT_EQ(model->pages_for(walker.sequence(), 1), 1);  // a copy of the shared one
  EXPECT_EQ(model->pages_for(walker.sequence(), 3), 2);
  walker.append(tokens(3), false);
  EXPECT_EQ(model->pages().free, 1);
}

TEST_F(CachePages, RunningOutRefusesTheStepAndChangesNothing) {
  const auto model = engine(2);
  Walker a(*model), b(*model);
  a.append(tokens(256), false);
  b.append(tokens(250), false);
  const auto expected = *model->save(b.sequence());
  const Ids next = tokens(10);
  const SequenceStep steps[] = {{.sequence = b.sequence(), .tokens = next}};
  const auto refused = model->step({.sequences = steps});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("1 more pages"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(model->length(b.sequence()), 250);
  Walker c(*model);
  const Status full = model->restore(c.sequence(), *expected);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("no page is free"), std::string::npos);
  EXPECT_EQ(model->length(c.sequence()), 0);
  a.clear();
  EXPECT_TRUE(model->step({.sequences = steps}));
}

TEST_F(CachePages, NeedASequenceThatIsThere) {
  const auto model = engine(4);
  EXPECT_FALSE(model->save(7));
  Walker walker(*model);
  EXPECT_FALSE(model->save(walker.sequence()));
  walker.append(tokens(3), false);
  const auto saved = *model->save(walker.sequence());
  EXPECT_FALSE(model->restore(walker.sequence(), *saved));
  EXPECT_FALSE(model->restore(-1, *saved));
}

}  // namespace
}  // namespace cachalot
