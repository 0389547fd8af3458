// The disk tier with a real model: what comes back after a restart has the bits of a cold start,
// and what was damaged, or belongs to others, does not come back.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <map>
#include <random>

#include "engine/cache_fingerprint.h"
#include "engine/prefix_cache.h"
#include "test_engine.h"
#include "walker.h"

namespace cachalot {
namespace {

namespace fs = std::filesystem;
using test::Ids;
using test::Walker;

constexpr PrefixCache::Kind kKind{.exact = true, .drafts = true};

std::vector<int64_t> key_of(std::span<const int32_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

std::span<const int32_t> first(const Ids& tokens, int64_t count) {
  return std::span(tokens).first(static_cast<size_t>(count));
}

class PrefixDisk : public testing::Test {
 protected:
  PrefixDisk() {
    std::string name = (fs::temp_directory_path() / "cachalot-prefix-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PrefixDisk() override { fs::remove_all(folder_); }

  static std::unique_ptr<Engine> open_engine(int64_t pages = 0) {
    return test::open_engine(
        test::data_path("tiny-a"),
        {.threads = 1, .max_sequences = 2, .max_context = 1024, .cache_pages = pages});
  }
  std::unique_ptr<PrefixCache> open_cache(Engine& engine, int64_t disk_bytes = int64_t{1} << 30,
                                          Result<std::string> fingerprint = std::string("model")) {
    return std::make_unique<PrefixCache>(
        engine, PrefixCacheOptions{.bytes = int64_t{1} << 30,
                                   .directory = folder_,
                                   .disk_bytes = disk_bytes,
                                   .fingerprint = std::move(fingerprint),
                                   .log = [this](const std::string& line) { log_ += line + "\n"; },
                                   .write_pause = pause_});
  }
  static Ids text(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    Ids tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(5 + static_cast<int32_t>(random() % 500));
    return tokens;
  }
  // Keeps the first `lengths` of a text, ascending.
  static void keep(Engine& engine, PrefixCache& cache, const Ids& tokens,
                   const std::vector<int64_t>& lengths) {
    Walker walker(engine);
    for (const int64_t length : lengths) {
      const int64_t held = engine.length(walker.sequence());
      walker.append(first(tokens, length).subspan(static_cast<size_t>(held)), true);
      cache.keep(walker.sequence(), key_of(first(tokens, length)), kKind);
    }
  }
  // Resumes and compares with a cold start, computed once per text and length; returns the length.
  int64_t check(Engine& engine, PrefixCache& cache, const Ids& tokens) {
    Walker warm(engine);
    const auto resumed = cache.resume(warm.sequence(), key_of(tokens), kKind);
    if (!resumed) throw std::runtime_error(resumed.error().message);
    if (resumed->length == 0) return 0;
    const auto next = std::span(tokens).subspan(static_cast<size_t>(resumed->length));
    const auto found = warm.outcome(next);
    auto& expected = cold_[{tokens, resumed->length}];
    if (expected.logits.empty()) {
      Walker cold(engine);
      cold.append(first(tokens, resumed->length), true);
      expected = cold.outcome(next);
    }
    EXPECT_EQ(found, expected);
    return resumed->length;
  }
  std::vector<fs::path> segments() const {
    std::vector<fs::path> paths;
    for (const auto& file : fs::directory_iterator(folder_)) {
      if (file.path().extension() == ".segment") paths.push_back(file.path());
    }
    std::ranges::sort(paths);
    return paths;
  }

  fs::path folder_;
  std::string log_;
  std::chrono::milliseconds pause_{60000};
  std::map<std::pair<Ids, int64_t>, Walker::Outcome> cold_;
};

TEST_F(PrefixDisk, SurvivesARestartToTheBit) {
  const Ids tokens = text(560, 1);
  {
    const auto engine = open_engine();
    const auto cache = open_cache(*engine);
    keep(*engine, *cache, tokens, {10, 255, 256, 257, 300, 513, 550});
    cache->flush();
    EXPECT_EQ(cache->statistics().disk_entries, 7);
  }
  const auto engine = open_engine();
  const auto cache = open_cache(*engine);
  EXPECT_EQ(cache->statistics().entries, 0);
  EXPECT_EQ(cache->statistics().disk_entries, 7);
  EXPECT_EQ(check(*engine, *cache, tokens), 550);
  EXPECT_EQ(check(*engine, *cache, tokens), 550);
  EXPECT_EQ(cache->statistics().disk_hits, 1);
  // A branch shares the pages the other one was loaded to.
  const int64_t pages = cache->statistics().pages;
  Ids branch = tokens;
  branch.resize(305);
  for (int i = 300; i < 305; ++i) branch[static_cast<size_t>(i)] = 7;
  EXPECT_EQ(check(*engine, *cache, branch), 300);
  EXPECT_EQ(cache->statistics().disk_hits, 2);
  EXPECT_EQ(cache->statistics().pages, pages);
  EXPECT_EQ(log_, "");
}

TEST_F(PrefixDisk, WritesAPageOncePerSegment) {
  const auto engine = open_engine();
  const auto cache = open_cache(*engine);
  keep(*engine, *cache, text(600, 1), {520});
  cache->flush();
  const int64_t once = cache->statistics().disk_bytes;
  keep(*engine, *cache, text(600, 1), {521});
  cache->flush();
  EXPECT_LT(cache->statistics().disk_bytes - once, once - 2 * engine->pages().bytes + 1000);
}

TEST_F(PrefixDisk, LeavesFilesOfOtherModelsAlone) {
  const auto engine = open_engine();
  keep(*engine, *open_cache(*engine), text(30, 1), {20});
  ASSERT_EQ(segments().size(), 1u);
  const auto other = open_cache(*engine, int64_t{1} << 30, "another model");
  EXPECT_EQ(check(*engine, *other, text(30, 1)), 0);
  EXPECT_NE(log_.find("found a file of other models, settings or builds of this program, "),
            std::string::npos)
      << log_;
  EXPECT_EQ(segments().size(), 1u);
}

TEST_F(PrefixDisk, KeepsToItsBudgetByDroppingTheOldestSegments) {
  const auto engine = open_engine();
  constexpr int64_t kBudget = 600000;
  {
    const auto cache = open_cache(*engine, kBudget);
    for (uint32_t i = 0; i < 60; ++i) {
      keep(*engine, *cache, text(40, i), {30});
      cache->flush();
      ASSERT_LE(cache->statistics().disk_bytes, kBudget);
    }
    EXPECT_LT(cache->statistics().disk_entries, 60);
    EXPECT_GT(cache->statistics().disk_entries, 10);
    int64_t bytes = 0;
    for (const fs::path& path : segments()) bytes += static_cast<int64_t>(fs::file_size(path));
    EXPECT_EQ(bytes, cache->statistics().disk_bytes);
  }
  const auto cache = open_cache(*engine, kBudget);
  EXPECT_EQ(check(*engine, *cache, text(40, 59)), 30);
  EXPECT_EQ(check(*engine, *cache, text(40, 0)), 0);
  EXPECT_EQ(log_, "");
}

TEST_F(PrefixDisk, IsForOneProcessAtATime) {
  const auto engine = open_engine();
  const auto one = open_cache(*engine), two = open_cache(*engine);
  EXPECT_NE(log_.find("another process uses it"), std::string::npos) << log_;
  keep(*engine, *two, text(30, 1), {20});
  EXPECT_EQ(check(*engine, *two, text(30, 1)), 20);
}

TEST_F(PrefixDisk, GoesOnWithoutTheDiskWhereNothingTellsWhoWroteIt) {
  const auto engine = open_engine();
  const auto fingerprint = cache_fingerprint(*test::open_checkpoint(test::data_path("tiny-a")),
                                             *engine, folder_ / "no program");
  const auto cache = open_cache(*engine, int64_t{1} << 30, fingerprint);
  keep(*engine, *cache, text(30, 1), {20});
  EXPECT_EQ(check(*engine, *cache, text(30, 1)), 20);
  EXPECT_NE(log_.find("no program: cannot open"), std::string::npos) << log_;
  EXPECT_NE(log_.find("going on without the disk"), std::string::npos) << log_;
  EXPECT_TRUE(segments().empty());
}

TEST_F(PrefixDisk, GoesOnWithoutAFolderItCannotHave) {
  std::ofstream(folder_ / "file") << "text";
  folder_ /= "file";
  const auto engine = open_engine();
  const auto cache = open_cache(*engine);
  folder_ = folder_.parent_path();
  EXPECT_NE(log_.find("going on without the disk"), std::string::npos) << log_;
  keep(*engine, *cache, text(30, 1), {20});
  EXPECT_EQ(check(*engine, *cache, text(30, 1)), 20);
}

// Any byte of any file: what is served has the bits of a cold start, the rest is a miss.
TEST_F(PrefixDisk, ServesNothingDamaged) {
  const Ids tokens = text(300, 1);
  const auto engine = open_engine();
  keep(*engine, *open_cache(*engine), tokens, {20, 270});
  const fs::path path = segments().front();
  const auto size = static_cast<int64_t>(fs::file_size(path));
  std::mt19937_64 random(9);
  int64_t served = 0;
  for (int round = 0; round < 30; ++round) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    const fs::path copy = folder_ / "copy";
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    if (round % 4 == 0) {
      fs::resize_file(path, static_cast<uintmax_t>(at));
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int old = file.get();
      file.seekp(at);
      file.put(static_cast<char>(old ^ (1 << random() % 8)));
    }
    log_.clear();
    const auto cache = open_cache(*engine);
    const int64_t length = check(*engine, *cache, tokens);
    served += length > 0 ? 1 : 0;
    if (length < 270) {
      EXPECT_NE(log_, "") << at;
    }
    fs::rename(copy, path);
  }
  EXPECT_GT(served, 4);
}

// As a full disk: a file that may not grow.
TEST_F(PrefixDisk, GoesOnWhenNothingMoreCanBeWritten) {
  const auto engine = open_engine();
  const auto cache = open_cache(*engine);
  keep(*engine, *cache, text(30, 1), {20});
  cache->flush();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 50000, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (uint32_t i = 2; i < 6; ++i) keep(*engine, *cache, text(30, i), {20});
  cache->flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(log_.find("nothing is written to disk until"), std::string::npos) << log_;
  EXPECT_EQ(std::ranges::count(log_, '\n'), 1) << log_;
  for (uint32_t i = 1; i < 6; ++i) EXPECT_EQ(check(*engine, *cache, text(30, i)), 20);
  log_.clear();
  const auto again = [&] {
    const auto other = open_engine();
    fs::rename(folder_ / "lock", folder_ / "old-lock");
    return check(*other, *open_cache(*other), text(30, 1));
  }();
  EXPECT_EQ(again, 20);
  EXPECT_EQ(log_, "");
}

TEST_F(PrefixDisk, WritesAgainWhenTheDiskHasRoomAgain) {
  pause_ = std::chrono::milliseconds(0);
  const auto engine = open_engine();
  const auto cache = open_cache(*engine);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 10, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  for (uint32_t i = 1; i < 4; ++i) keep(*engine, *cache, text(30, i), {20});
  cache->flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::ranges::count(log_, '\n'), 1) << log_;
  EXPECT_EQ(segments().size(), 0U);
  for (uint32_t i = 4; i < 6; ++i) keep(*engine, *cache, text(30, i), {20});
  cache->flush();
  EXPECT_NE(log_.find("takes states again"), std::string::npos) << log_;
  EXPECT_EQ(std::ranges::count(log_, '\n'), 2) << log_;
  EXPECT_EQ(segments().size(), 1U);
  EXPECT_EQ(cache->statistics().disk_entries, 2);
}

TEST_F(PrefixDisk, TakesWhatMemoryHasWhereItCannotLoad) {
  const Ids tokens = text(600, 1);
  {
    const auto engine = open_engine();
    keep(*engine, *open_cache(*engine), tokens, {20, 530});
  }
  const auto engine = open_engine(3);
  const auto cache = open_cache(*engine);
  Walker user(*engine);
  user.append(text(300, 2), false);  // two of three pages
  EXPECT_EQ(cache->longest(key_of(tokens), kKind), 530);
  Walker walker(*engine);
  EXPECT_EQ(cache->resume(walker.sequence(), key_of(tokens), kKind)->length, 0);
  EXPECT_EQ(log_, "");
  EXPECT_EQ(cache->longest(key_of(tokens), kKind), 530);
}

// States on their way to disk hold pages that sequences need.
TEST_F(PrefixDisk, GivesPagesBackThatWaitToBeWritten) {
  const auto engine = open_engine(5);
  const auto cache = open_cache(*engine);
  Walker walker(*engine);
  walker.append(text(250, 1), true);
  const auto saved = *engine->save(walker.sequence());
  for (uint32_t i = 0; i < 60; ++i) {
    walker.clear();
    ASSERT_TRUE(cache->release_pages(1));
    ASSERT_TRUE(engine->restore(walker.sequence(), *saved));
    ASSERT_TRUE(cache->release_pages(engine->pages_for(walker.sequence(), 10))) << i;
    walker.append(text(10, 100 + i), true);
    Ids tokens = text(250, 1);
    for (const int32_t token : text(10, 100 + i)) tokens.push_back(token);
    cache->keep(walker.sequence(), key_of(tokens), kKind);
  }
  walker.clear();
  EXPECT_TRUE(cache->release_pages(5));
}

TEST(CacheFingerprint, NamesCheckpointProgramArithmeticAndLayout) {
  const auto of = [](const char* model, const EngineOptions& options,
                     const char* program = "/proc/self/exe") {
    const auto engine = test::open_engine(test::data_path(model), options);
    return cache_fingerprint(*test::open_checkpoint(test::data_path(model)), *engine, program)
        .value();
  };
  const std::string plain = of("tiny-a", {.threads = 1, .isa = Isa::generic});
  EXPECT_EQ(of("tiny-a", {.threads = 2, .isa = Isa::generic, .max_sequences = 3}), plain);
  EXPECT_NE(of("tiny-b", {.threads = 1, .isa = Isa::generic}), plain);
  EXPECT_NE(of("tiny-a", {.threads = 1, .isa = Isa::generic}, "/bin/sh"), plain);
  EXPECT_NE(of("tiny-a", {.isa = Isa::generic, .rollback = 9}), plain);
  EXPECT_NE(of("tiny-a", {.isa = Isa::generic, .expert_input = ExpertInput::int8}), plain);
  EXPECT_NE(of("tiny-a", {.isa = Isa::generic, .shortcut_tail = 30}), plain);
  EXPECT_NE(of("tiny-a", {.backend = Backend::reference}), plain);
  EXPECT_NE(plain.find("generic"), std::string::npos) << plain;
}

}  // namespace
}  // namespace cachalot
