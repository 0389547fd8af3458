// kill -9 while the prefix cache is written, again and again in one folder: after each restart
// every state that is found has the bits of a cold start. The program runs itself as the one that
// dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "engine/prefix_cache.h"
#include "test_engine.h"
#include "walker.h"

namespace cachalot {
namespace {

namespace fs = std::filesystem;
using test::Ids;
using test::Walker;

#ifndef CACHALOT_CRASH_ROUNDS
#define CACHALOT_CRASH_ROUNDS 10
#endif

constexpr PrefixCache::Kind kKind{.exact = true, .drafts = true};
constexpr int64_t kBeginning = 265;  // a page and some
constexpr uint32_t kBeginnings = 3;

Ids text(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Ids tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(5 + static_cast<int32_t>(random() % 500));
  return tokens;
}

// Prompt `number`: one of three beginnings, and an end of its own.
Ids prompt(uint32_t number) {
  Ids tokens = text(kBeginning, number % kBeginnings);
  const Ids end = text(5 + number % 20, 1000 + number);
  tokens.insert(tokens.end(), end.begin(), end.end());
  return tokens;
}

std::vector<int64_t> key_of(const Ids& tokens) { return {tokens.begin(), tokens.end()}; }

std::unique_ptr<Engine> open_engine() {
  return test::open_engine(
      test::data_path("tiny-a"),
      {.threads = 1, .max_sequences = 2, .max_context = 1024, .cache_pages = 40});
}

PrefixCacheOptions options(const fs::path& folder, std::function<void(const std::string&)> log) {
  return {.bytes = int64_t{1} << 26,
          .directory = folder,
          .disk_bytes = 8000000,
          .fingerprint = "tiny-a",
          .log = std::move(log)};
}

// Prompts from `number` on are saved without end, in memory first, so that the cache writes as fast
// as it can.
int run_writer(const fs::path& folder, uint32_t number, int ready) {
  const auto engine = open_engine();
  const auto sequence = *engine->open_sequence();
  std::vector<std::shared_ptr<const SavedSequence>> beginnings;
  for (uint32_t i = 0; i < kBeginnings; ++i) {
    const Ids tokens = text(kBeginning, i);
    const SequenceStep step{.sequence = sequence, .tokens = tokens};
    if (!engine->step({.sequences = {&step, 1}, .draft_taps = true})) return 1;
    beginnings.push_back(*engine->save(sequence));
    if (!engine->truncate(sequence, 0)) return 1;
  }
  PrefixCache cache(*engine, options(folder, [](const std::string&) {}));
  if (::write(ready, "r", 1) != 1) return 1;
  for (;; ++number) {
    const Ids tokens = prompt(number);
    if (!engine->restore(sequence, *beginnings[number % kBeginnings])) return 1;
    const SequenceStep step{.sequence = sequence, .tokens = std::span(tokens).subspan(kBeginning)};
    if (!engine->step({.sequences = {&step, 1}, .draft_taps = true})) return 1;
    cache.keep(sequence, key_of(tokens), kKind);
    if (!engine->truncate(sequence, 0)) return 1;
  }
}

// Starts the writer and kills it `life` after it began to write.
void write_and_die(const fs::path& folder, uint32_t number, std::chrono::milliseconds life) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string first = std::to_string(number), ready = std::to_string(ends[1]);
    ::execl("/proc/self/exe", "writer", "--writer", folder.c_str(), first.c_str(), ready.c_str(),
            nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  std::this_thread::sleep_for(life);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// What a cold start makes of prompts: from a beginning that was computed here and never on disk.
class ColdStarts {
 public:
  explicit ColdStarts(Engine& engine) : engine_(engine) {
    for (uint32_t i = 0; i < kBeginnings; ++i) {
      Walker walker(engine);
      walker.append(text(kBeginning, i), true);
      beginnings_.push_back(*engine.save(walker.sequence()));
    }
  }
  const Walker::Outcome& of(uint32_t number) {
    const auto known = outcomes_.find(number);
    if (known != outcomes_.end()) return known->second;
    Walker walker(engine_, *beginnings_[number % kBeginnings]);
    walker.append(std::span<const int32_t>(prompt(number)).subspan(kBeginning), true);
    return outcomes_[number] = walker.outcome(std::vector<int32_t>{7});
  }

 private:
  Engine& engine_;
  std::vector<std::shared_ptr<const SavedSequence>> beginnings_;
  std::map<uint32_t, Walker::Outcome> outcomes_;
};

TEST(PrefixCrash, NeverServesAWrongStateAfterKill) {
  std::string name = (fs::temp_directory_path() / "cachalot-crash-XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  const auto engine = open_engine();
  ColdStarts cold(*engine);
  std::mt19937 random(11);
  uint32_t written = 0;
  int64_t hits = 0, newest = 0;
  for (int round = 0; round < CACHALOT_CRASH_ROUNDS; ++round) {
    const uint32_t begin = written;
    write_and_die(folder, begin, std::chrono::milliseconds(random() % 150));
    std::string log;
    PrefixCache cache(*engine, options(folder, [&](const std::string& line) { log += line; }));
    // The killed one got so far; a gap would be a lost state before one that is there.
    for (uint32_t misses = 0; misses < 50; ++written) {
      Ids tokens = prompt(written);
      tokens.push_back(7);
      misses = cache.longest(key_of(tokens), kKind) == std::ssize(tokens) - 1 ? 0 : misses + 1;
    }
    written -= 50;
    newest += written > begin ? 1 : 0;
    for (uint32_t number = 0; number < written; ++number) {
      Ids tokens = prompt(number);
      tokens.push_back(7);
      if (cache.longest(key_of(tokens), kKind) < std::ssize(tokens) - 1) {
        ASSERT_LT(number, begin) << "lost, though a later one is there";
        continue;  // its segment made room for others
      }
      Walker walker(*engine);
      ASSERT_EQ(cache.resume(walker.sequence(), key_of(tokens), kKind)->length,
                std::ssize(tokens) - 1);
      ASSERT_EQ(walker.outcome(std::vector<int32_t>{7}), cold.of(number)) << number;
      ++hits;
    }
    EXPECT_LE(cache.statistics().disk_bytes, 8000000);
  }
  EXPECT_GT(hits, CACHALOT_CRASH_ROUNDS);
  EXPECT_GT(newest, CACHALOT_CRASH_ROUNDS / 3);
  fmt::print("{} states written, {} hits, all as from a cold start\n", written, hits);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace cachalot

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == "--writer") {
    return cachalot::run_writer(argv[2], static_cast<uint32_t>(std::stoul(argv[3])),
                                std::stoi(argv[4]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
