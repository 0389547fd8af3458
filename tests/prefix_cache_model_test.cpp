// An answer is the same from a cold cache and from a warm one.
#include <gtest/gtest.h>

#include <random>

#include "engine/prefix_cache.h"
#include "test_engine.h"
#include "walker.h"

namespace cachalot {
namespace {

using test::Ids;
using test::Walker;
using Key = std::vector<int64_t>;

Key key_of(std::span<const int32_t> tokens) { return {tokens.begin(), tokens.end()}; }

std::span<const int32_t> tail(const Ids& tokens, int64_t first) {
  return std::span(tokens).subspan(static_cast<size_t>(first));
}

class PrefixCacheModel : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine(EngineOptions options = {}) const {
    options.threads = 1;
    options.max_sequences = 3;
    options.max_context = 1024;
    const bool nano = GetParam() == "nano";
    return test::open_engine(nano ? test::nano_path() : test::data_path(GetParam()), options);
  }
};

Ids text(const Engine& engine, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Ids tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<int32_t>(5 + random() % static_cast<uint32_t>(engine.config().vocab_size - 5)));
  }
  return tokens;
}

// Turns of a conversation, each the last one and some more, and branches off any place of it.
TEST_P(PrefixCacheModel, GivesTheBitsOfAColdStart) {
  const auto model = engine({.cache_pages = 12});
  PrefixCache cache(*model, {.bytes = int64_t{1} << 30});
  const PrefixCache::Kind kind{.exact = true, .drafts = true};
  std::mt19937 random(3);
  Ids prompt = text(*model, 3, 1);
  int64_t saved = 0;
  for (uint32_t turn = 0; turn < 12; ++turn) {
    if (turn % 4 == 3) prompt.resize(1 + random() % prompt.size());
    const Ids more = text(*model, 1 + random() % 60, 100 + turn);
    prompt.insert(prompt.end(), more.begin(), more.end());
    const Ids reply = text(*model, 4, 200 + turn);
    Walker warm(*model), cold(*model);
    const auto resumed = cache.resume(warm.sequence(), key_of(prompt), kind);
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_EQ(resumed->length > 0, turn > 0);
    saved += resumed->length;
    EXPECT_EQ(warm.append(tail(prompt, resumed->length), true), cold.append(prompt, true));
    cache.keep(warm.sequence(), key_of(prompt), kind);
    EXPECT_EQ(warm.outcome(reply), cold.outcome(reply));
    prompt.insert(prompt.end(), reply.begin(), reply.end());
    cache.keep(warm.sequence(), key_of(prompt), kind);
  }
  EXPECT_EQ(cache.statistics().tokens_saved, saved);
  EXPECT_EQ(cache.statistics().entries, 24);
  EXPECT_TRUE(cache.release_pages(model->pages().total));
  EXPECT_EQ(model->pages().free, model->pages().total);
}

// A prompt sent twice is computed once but for its last token (spec: field-faults).
TEST_P(PrefixCacheModel, ComputesAPromptSentAgainFromItsLastTokenOn) {
  const auto model = engine();
  for (const bool drafts : {false, true}) {
    PrefixCache cache(*model, {.bytes = int64_t{1} << 30});
    const PrefixCache::Kind kind{.exact = true, .drafts = drafts};
    const Ids prompt = text(*model, 300, 5);
    Walker cold(*model), warm(*model);
    const auto expected = cold.append(prompt, drafts);
    cache.keep(cold.sequence(), key_of(prompt), kind);
    EXPECT_EQ(cache.resume(warm.sequence(), key_of(prompt), kind)->length, 299);
    EXPECT_EQ(warm.append(tail(prompt, 299), drafts), expected);
    EXPECT_EQ(cache.longest(key_of(text(*model, 300, 6)), kind), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixCacheModel, testing::Values("nano", "tiny-a", "tiny-b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace cachalot
