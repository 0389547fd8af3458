// The tree, the budget and the pages, on an engine that computes nothing; what the states are worth
// is tested in tests/prefix_cache_model_test.cpp.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/counting_engine.h"

namespace cachalot {
namespace {

using Key = std::vector<int64_t>;
using Kind = PrefixCache::Kind;
using test::CountingEngine;

constexpr Kind kExact{.exact = true, .drafts = false}, kDrafted{.exact = true, .drafts = true},
    kShort{.exact = false, .drafts = false}, kShortDrafted{.exact = false, .drafts = true};
constexpr Kind kKinds[] = {kExact, kDrafted, kShort, kShortDrafted};

Key counted(int64_t count, int64_t first = 0) {
  Key key;
  for (int64_t i = 0; i < count; ++i) key.push_back(first + i);
  return key;
}

Key joined(Key a, const Key& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A cache with an engine and two of its sequences.
struct Bench {
  explicit Bench(int64_t bytes = int64_t{1} << 40, int64_t pages = 1000)
      : engine(pages), cache(engine, {.bytes = bytes}) {}

  void keep(const Key& key, Kind kind = kExact, int64_t rejected = 0) {
    const int32_t sequence = *engine.open_sequence();
    engine.append(sequence, std::ssize(key) + rejected);
    ASSERT_TRUE(engine.truncate(sequence, std::ssize(key)));
    cache.keep(sequence, key, kind);
    engine.close_sequence(sequence);
  }
  int64_t resume(const Key& key, Kind kind = kExact) {
    const int32_t sequence = *engine.open_sequence();
    const int64_t length = cache.resume(sequence, key, kind)->length;
    EXPECT_EQ(engine.length(sequence), length);
    engine.close_sequence(sequence);
    return length;
  }

  CountingEngine engine;
  PrefixCache cache;
};

TEST(PrefixCache, ResumesTheLongestSavedBeginning) {
  Bench bench;
  bench.keep(counted(100));
  bench.keep(counted(200));
  EXPECT_EQ(bench.resume(counted(300)), 200);
  EXPECT_EQ(bench.resume(joined(counted(150), counted(50, 7))), 100);
  EXPECT_EQ(bench.resume(counted(300, 1)), 0);
  EXPECT_EQ(bench.cache.statistics().hits, 2);
  EXPECT_EQ(bench.cache.statistics().misses, 1);
  EXPECT_EQ(bench.cache.statistics().tokens_saved, 300);
}

TEST(PrefixCache, LeavesTheLastTokenToBeComputed) {
  Bench bench;
  bench.keep(counted(100));
  EXPECT_EQ(bench.resume(counted(101)), 100);
  EXPECT_EQ(bench.resume(counted(100)), 99);  // cut back by one
  EXPECT_EQ(bench.resume(counted(1)), 0);
  EXPECT_EQ(bench.resume({}), 0);
}

TEST(PrefixCache, CutsAStateBackAsFarAsItsRingsReach) {
  Bench bench;  // a rollback of 8
  bench.keep(counted(100), kExact, /*rejected=*/3);
  EXPECT_EQ(bench.resume(joined(counted(95), counted(9, 500))), 95);
  EXPECT_EQ(bench.resume(joined(counted(94), counted(9, 500))), 0);
  bench.keep(counted(60));
  EXPECT_EQ(bench.resume(joined(counted(94), counted(9, 500))), 60);
  EXPECT_EQ(bench.resume(joined(counted(52), counted(9, 500))), 52);
}

TEST(PrefixCache, ServesNoOneWhoWantsMoreThanAStateHas) {
  for (const Kind made : kKinds) {
    Bench bench;
    bench.keep(counted(50), made);
    EXPECT_EQ(bench.resume(counted(60), kExact), made.exact ? 50 : 0);
    EXPECT_EQ(bench.resume(counted(60), kDrafted), made == kDrafted ? 50 : 0);
    EXPECT_EQ(bench.resume(counted(60), kShort), 50);
    EXPECT_EQ(bench.resume(counted(60), kShortDrafted), made.drafts ? 50 : 0);
  }
}

TEST(PrefixCache, KeepsStatesThatComplementEachOtherAndTheBetterOfOthers) {
  Bench bench;
  bench.keep(counted(50), kExact);
  bench.keep(counted(50), kShortDrafted);
  EXPECT_EQ(bench.cache.statistics().entries, 2);
  bench.keep(counted(50), kShort);
  EXPECT_EQ(bench.cache.statistics().entries, 2);
  bench.keep(counted(50), kDrafted);
  EXPECT_EQ(bench.cache.statistics().entries, 1);
  for (const Kind wanted : kKinds) EXPECT_EQ(bench.resume(counted(60), wanted), 50);
}

TEST(PrefixCache, CountsASharedPageOnceAndFreesAllInTheEnd) {
  CountingEngine engine(100);
  {
    PrefixCache cache(engine, {.bytes = int64_t{1} << 40});
    const int32_t sequence = *engine.open_sequence();
    for (int64_t length = 16; length <= 160; length += 16) {
      engine.append(sequence, 16);
      cache.keep(sequence, counted(length), kExact);
    }
    EXPECT_EQ(cache.statistics().entries, 10);
    EXPECT_EQ(cache.statistics().pages, 10);
    EXPECT_EQ(cache.statistics().bytes, 10 * engine.pages().bytes + 10 * CountingEngine::kCopied);
    engine.close_sequence(sequence);
    EXPECT_EQ(engine.pages().free, 90);
  }
  EXPECT_EQ(engine.pages().free, 100);
}

TEST(PrefixCache, DropsTheLeastRecentlyUsedBeyondItsBudget) {
  Bench bench(3 * CountingEngine::kCopied);  // states of less than a page
  bench.keep({1, 1, 1});
  bench.keep({2, 2, 2});
  bench.keep({3, 3, 3});
  EXPECT_EQ(bench.resume({1, 1, 1, 1}), 3);
  bench.keep({4, 4, 4});
  EXPECT_EQ(bench.resume({2, 2, 2, 2}), 0);
  EXPECT_EQ(bench.resume({1, 1, 1, 1}), 3);
  bench.keep({3, 3, 3});  // there already: used
  bench.keep({5, 5, 5});
  EXPECT_EQ(bench.resume({4, 4, 4, 4}), 0);
  EXPECT_EQ(bench.resume({3, 3, 3, 3}), 3);
  EXPECT_EQ(bench.cache.statistics().evictions, 2);
  EXPECT_LE(bench.cache.statistics().bytes, 3 * CountingEngine::kCopied);
}

TEST(PrefixCache, KeepsNothingWithoutABudgetOrBeyondIt) {
  Bench none(0), small(CountingEngine::kCopied - 1);
  for (Bench* bench : {&none, &small}) {
    bench->keep(counted(10));
    EXPECT_EQ(bench->resume(counted(20)), 0);
    EXPECT_EQ(bench->cache.statistics().entries, 0);
    EXPECT_EQ(bench->cache.statistics().bytes, 0);
  }
}

TEST(PrefixCache, GivesPagesBackIfThatHelps) {
  Bench bench(int64_t{1} << 40, 10);
  bench.keep(counted(32));        // 2 pages
  bench.keep(counted(48, 1000));  // 3
  EXPECT_EQ(bench.engine.pages().free, 5);
  EXPECT_TRUE(bench.cache.release_pages(5));
  EXPECT_EQ(bench.cache.statistics().entries, 2);
  EXPECT_FALSE(bench.cache.release_pages(11));
  EXPECT_EQ(bench.cache.statistics().entries, 2);
  EXPECT_TRUE(bench.cache.release_pages(6));
  EXPECT_EQ(bench.resume(counted(33)), 0);
  EXPECT_EQ(bench.resume(counted(49, 1000)), 48);
  const int32_t user = *bench.engine.open_sequence();
  EXPECT_EQ(bench.cache.resume(user, counted(49, 1000), kExact)->length, 48);
  EXPECT_FALSE(bench.cache.release_pages(8));  // what a sequence uses is not freed by dropping it
  EXPECT_EQ(bench.cache.statistics().entries, 1);
}

TEST(PrefixCache, MakesRoomForTheLastPageOfWhatItRestores) {
  Bench bench(int64_t{1} << 40, 5);
  bench.keep(counted(32, 1000));  // 2 pages, used before the other
  bench.keep(counted(40));        // 2 full ones, one copied
  bench.engine.append(*bench.engine.open_sequence(), 1);
  EXPECT_EQ(bench.engine.pages().free, 0);
  EXPECT_EQ(bench.resume(counted(50)), 40);
  EXPECT_EQ(bench.resume(counted(50, 1000)), 0);
}

TEST(PrefixCache, KeepsNoStateWhoseUpperLayersAreBehind) {
  Bench bench;
  const int32_t sequence = *bench.engine.open_sequence();
  bench.engine.append(sequence, 20);
  bench.engine.fall_behind(sequence, 5);
  bench.cache.keep(sequence, counted(20), kShort);
  EXPECT_EQ(bench.cache.statistics().entries, 0);
  EXPECT_EQ(bench.resume(counted(30), kShort), 0);
}

// What a list of all states says, for keys that share beginnings of any length.
class NaiveCache {
 public:
  void keep(const Key& key, Kind kind, int64_t rejected) {
    for (const State& state : states_) {
      if (state.key == key && state.kind.serves(kind)) return;
    }
    std::erase_if(states_,
                  [&](const State& state) { return state.key == key && kind.serves(state.kind); });
    states_.push_back({key, kind, rejected});
  }
  int64_t longest(const Key& key, Kind wanted, int64_t rollback) const {
    int64_t best = 0;
    for (const State& state : states_) {
      if (!state.kind.serves(wanted)) continue;
      const int64_t most = std::ssize(key) - 1, length = std::ssize(state.key);
      int64_t common = 0;
      while (common < std::min(most, length) &&
             key[static_cast<size_t>(common)] == state.key[static_cast<size_t>(common)]) {
        ++common;
      }
      const bool usable = common == length || common >= length + state.rejected - rollback;
      if (usable) best = std::max(best, common);
    }
    return best;
  }

 private:
  struct State {
    Key key;
    Kind kind;
    int64_t rejected;
  };
  std::vector<State> states_;
};

TEST(PrefixCache, AgreesWithAListOfAllStates) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    Bench bench(int64_t{1} << 40, 4000);
    NaiveCache naive;
    std::vector<Key> keys;
    const auto some_key = [&] {
      Key key;
      if (!keys.empty() && random() % 4 != 0) {
        key = keys[random() % keys.size()];
        key.resize(random() % (key.size() + 1));
      }
      for (size_t more = random() % 25; more > 0; --more) key.push_back(random() % 2);
      keys.push_back(key);
      return key;
    };
    for (int i = 0; i < 80; ++i) {
      const Key key = some_key();
      const Kind kind = kKinds[random() % 4];
      if (!key.empty() && random() % 2 == 0) {
        const int64_t rejected = random() % 6;
        bench.keep(key, kind, rejected);
        naive.keep(key, kind, rejected);
        continue;
      }
      const int64_t expected = naive.longest(key, kind, bench.engine.options().rollback);
      ASSERT_EQ(bench.cache.longest(key, kind), std::max<int64_t>(expected, 0));
      ASSERT_EQ(bench.resume(key, kind), std::max<int64_t>(expected, 0));
    }
  }
}

}  // namespace
}  // namespace cachalot
