// Experts and engram rows read from disk when they are used: the same bits as from the mapping, at
// any budget; a disk that fails ends the request and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "checkpoint/test_folder.h"
#include "engine/expert_profile.h"
#include "engine/generation.h"
#include "engine/stored_weights.h"
#include "test_engine.h"
#include "tokenizer/engram_token_map.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {
namespace {

struct Model {
  std::string name;
  std::filesystem::path folder;
};

const Model kModels[] = {{"TinyA", test::data_path("tiny-a")},
                         {"TinyB", test::data_path("tiny-b")},
                         {"Nano", test::nano_path()}};

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(5 + random() % (static_cast<uint32_t>(vocabulary) - 5)));
  }
  return tokens;
}

std::unique_ptr<Engine> open(const Model& model, EngineOptions options) {
  if (options.threads == 0) options.threads = 2;
  if (options.max_context == 0) options.max_context = 512;
  return test::open_engine(model.folder, options);
}

// An engine that holds `experts` experts and `rows_bytes` of engram rows.
std::unique_ptr<Engine> open_with_budget(const Model& model, int64_t experts, int64_t row_bytes,
                                         EngineOptions options = {}) {
  options.storage.expert_bytes = int64_t{1} << 30;
  const int64_t slot = open(model, options)->storage()->statistics().experts->slot_bytes;
  options.storage.expert_bytes = experts * slot;
  options.storage.row_bytes = row_bytes;
  return open(model, options);
}

using Logits = std::vector<float>;

Result<Logits> run(Engine& engine, std::span<const int32_t> tokens, size_t chunk) {
  const int32_t sequence = *engine.open_sequence();
  Logits all;
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const SequenceStep part{.sequence = sequence,
                            .tokens = tokens.subspan(first, std::min(chunk, tokens.size() - first)),
                            .logits = LogitsOf::all};
    const auto result = engine.step({.sequences = {&part, 1}});
    if (!result) {
      engine.close_sequence(sequence);
      return fail(result.error());
    }
    all.insert(all.end(), result->logits.data, result->logits.data + result->logits.elements());
  }
  engine.close_sequence(sequence);
  return all;
}

bool bits_equal(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> generate(Engine& engine, std::span<const int32_t> prompt) {
  const ModelConfig& config = engine.config();
  DraftParameters drafts;
  if (config.has_drafts())
    drafts = {DraftMode::fixed, std::min<int64_t>(3, config.dspark_block_size)};
  auto generator = Generator::open(engine, drafts);
  EXPECT_TRUE(generator) << generator.error().message;
  GenerationParameters parameters{.max_tokens = 24};
  parameters.sampling.temperature = 0;
  const auto result = generator->generate(prompt, parameters);
  EXPECT_TRUE(result) << result.error().message;
  return result->ids;
}

int64_t all_experts(const ModelConfig& config) {
  return config.n_layers * config.n_routed_experts +
         config.n_mtp_layers * config.dspark_n_routed_experts;
}

class Storage : public testing::TestWithParam<Model> {};

TEST_P(Storage, EveryBudgetGivesTheBitsOfTheMapping) {
  const auto resident = open(GetParam(), {});
  const ModelConfig& config = resident->config();
  const auto tokens = random_tokens(48, config.vocab_size, 1);
  const Logits expected = *run(*resident, tokens, tokens.size());
  const auto text = generate(*resident, tokens);
  const int64_t all = all_experts(config), top = config.n_activated_experts;
  for (const int64_t experts : {int64_t{1}, int64_t{2}, top + 1, all / 4, all}) {
    const auto engine = open_with_budget(GetParam(), experts, experts % 2 == 0 ? 0 : 4096);
    for (const size_t chunk : {tokens.size(), size_t{experts % 2 == 0 ? 7u : 1u}}) {
      const auto logits = run(*engine, tokens, chunk);
      ASSERT_TRUE(logits) << logits.error().message;
      EXPECT_TRUE(bits_equal(expected, *logits)) << experts << " experts, chunks of " << chunk;
    }
    EXPECT_EQ(text, generate(*engine, tokens)) << experts << " experts";
    const auto statistics = engine->storage()->statistics();
    EXPECT_EQ(statistics.experts->slots, experts);
    EXPECT_LE(statistics.experts->slots * statistics.experts->slot_bytes,
              *engine->options().storage.expert_bytes);
    EXPECT_GT(statistics.experts->misses, 0);
  }
}

TEST_P(Storage, ReadersAndThreadsChangeNothing) {
  const auto resident = open(GetParam(), {});
  const auto tokens = random_tokens(40, resident->config().vocab_size, 2);
  const Logits expected = *run(*resident, tokens, 9);
  std::vector<ReaderKind> kinds = {ReaderKind::threads};
  if (make_file_reader(ReaderKind::io_uring, {})) kinds.push_back(ReaderKind::io_uring);
  for (const ReaderKind kind : kinds) {
    for (const bool direct : {true, false}) {
      for (const int threads : {1, 3}) {
        EngineOptions options{.threads = threads};
        options.storage.reader = kind;
        options.storage.direct = direct;
        const auto engine = open_with_budget(GetParam(), 5, 10000, options);
        const auto logits = run(*engine, tokens, 9);
        ASSERT_TRUE(logits) << logits.error().message;
        EXPECT_TRUE(bits_equal(expected, *logits)) << static_cast<int>(kind) << ", " << threads;
      }
    }
  }
}

TEST_P(Storage, WhatFitsIsReadOnce) {
  const auto engine = open_with_budget(GetParam(), 1 << 20, 1 << 20);
  const ModelConfig& config = engine->config();
  const auto tokens = random_tokens(40, config.vocab_size, 3);
  ASSERT_TRUE(run(*engine, tokens, 8));
  const auto first = engine->storage()->statistics();
  ASSERT_TRUE(run(*engine, tokens, 8));
  const auto second = engine->storage()->statistics();
  EXPECT_EQ(first.experts->slots, all_experts(config));
  EXPECT_EQ(first.experts->misses, second.experts->misses);
  EXPECT_EQ(first.experts->bytes_read, second.experts->bytes_read);
  EXPECT_EQ(second.experts->hits, 2 * first.experts->hits + first.experts->misses);
  if (!first.rows) return;
  EXPECT_EQ(first.rows->misses, second.rows->misses);
  EXPECT_GT(second.rows->hits, first.rows->hits);
}

TEST_P(Storage, AProfileOfOneRunServesTheNext) {
  const TestFolder folder;
  EngineOptions options;
  options.expert_profile = folder.path() / "hot.json";
  const auto first = open_with_budget(GetParam(), 1, 0);
  const auto tokens = random_tokens(40, first->config().vocab_size, 9);
  const Logits expected = *run(*first, tokens, 8);
  ASSERT_TRUE(write_expert_profile(options.expert_profile, {first->storage()->experts()->uses()},
                                   first->config()));
  const int64_t half = all_experts(first->config()) / 2;
  const auto plain = open_with_budget(GetParam(), half, 0);
  const auto pinned = open_with_budget(GetParam(), half, 0, options);
  EXPECT_TRUE(bits_equal(expected, *run(*plain, tokens, 8)));
  EXPECT_TRUE(bits_equal(expected, *run(*pinned, tokens, 8)));
  const auto statistics = *pinned->storage()->statistics().experts;
  EXPECT_GT(statistics.pinned, 0);
  EXPECT_LE(statistics.pinned, half - first->config().n_activated_experts);
  EXPECT_GT(statistics.hits, plain->storage()->statistics().experts->hits);
}

INSTANTIATE_TEST_SUITE_P(Models, Storage, testing::ValuesIn(kModels),
                         [](const auto& info) { return info.param.name; });

// Fails the read it is told to, and lets some come late.
class FaultyReader final : public FileReader, public ReadListener {
 public:
  struct Plan {
    std::atomic<int64_t> started = 0;
    std::atomic<int64_t> fail_at = -1;  // counted from the first read
    std::atomic<int64_t> late = 0;      // each this many-th read takes 2 ms more
  };

  FaultyReader(std::unique_ptr<FileReader> real, Plan& plan)
      : plan_(plan), real_(std::move(real)) {}

  std::string_view name() const override { return real_->name(); }

  void start(std::span<const FileRead> reads) override {
    for (FileRead read : reads) {
      {
        const std::lock_guard lock(mutex_);
        reads_.push_back({read, plan_.started++});
        read.tag = reads_.size() - 1;
      }
      read.listener = this;
      real_->start({&read, 1});
    }
  }

  void read_done(const FileRead& read, const Status& status) override {
    std::unique_lock lock(mutex_);
    const auto [original, number] = reads_[read.tag];
    lock.unlock();
    if (plan_.late > 0 && number % plan_.late == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (number == plan_.fail_at) {
      original.listener->read_done(original, fail("FILE: no luck at offset {}", read.offset));
    } else {
      original.listener->read_done(original, status);
    }
  }

 private:
  Plan& plan_;
  std::mutex mutex_;
  std::vector<std::pair<FileRead, int64_t>> reads_;
  std::unique_ptr<FileReader> real_;  // the first to go: its threads call the others
};

EngineOptions with_faults(FaultyReader::Plan& plan, ReaderKind kind = ReaderKind::threads) {
  EngineOptions options;
  options.storage.reader = kind;
  options.storage.wrap_reader = [&plan](std::unique_ptr<FileReader> real) {
    return std::make_unique<FaultyReader>(std::move(real), plan);
  };
  return options;
}

TEST(FailingDisk, EndsTheStepAtWhicheverReadAndTheEngineGoesOn) {
  const Model& model = kModels[0];
  const auto resident = open(model, {});
  const auto tokens = random_tokens(6, resident->config().vocab_size, 4);
  const Logits expected = *run(*resident, tokens, 3);
  FaultyReader::Plan plan;
  const auto engine = open_with_budget(model, 3, 0, with_faults(plan));
  const int64_t before = plan.started;
  ASSERT_TRUE(run(*engine, tokens, 3));
  const int64_t reads = plan.started - before;
  ASSERT_GT(reads, 50);
  int failures = 0;
  for (int64_t number = 0; number < reads; number += number < 40 ? 1 : 7) {
    plan.fail_at = plan.started + number;
    const auto failed = run(*engine, tokens, 3);
    if (!failed) {
      ++failures;
      EXPECT_NE(failed.error().message.find("FILE: no luck at offset"), std::string::npos);
    }
    plan.fail_at = -1;
    const auto logits = run(*engine, tokens, 3);
    ASSERT_TRUE(logits) << "after a failure of read " << number;
    ASSERT_TRUE(bits_equal(expected, *logits)) << "after a failure of read " << number;
  }
  EXPECT_GT(failures, 30);
}

// A step that fails leaves the sequence as it was where the rollback reaches that far, else empty.
TEST(FailingDisk, LeavesSequencesThatCanGoOn) {
  const Model& model = kModels[2];
  const auto resident = open(model, {});
  const auto tokens = random_tokens(60, resident->config().vocab_size, 5);
  const Logits expected = *run(*resident, tokens, tokens.size());
  FaultyReader::Plan plan;
  const auto engine = open_with_budget(model, 8, 0, with_faults(plan));
  const int32_t sequence = *engine->open_sequence();
  const auto step = [&](size_t first, size_t count) -> Result<Logits> {
    const SequenceStep part{.sequence = sequence,
                            .tokens = std::span<const int32_t>(tokens).subspan(first, count),
                            .logits = LogitsOf::all};
    CACHALOT_TRY(const auto result, engine->step({.sequences = {&part, 1}}));
    return Logits(result.logits.data, result.logits.data + result.logits.elements());
  };
  const auto values = static_cast<int64_t>(resident->config().vocab_size);
  ASSERT_TRUE(step(0, 40));
  plan.fail_at = plan.started + 5;
  ASSERT_FALSE(step(40, 4));
  ASSERT_EQ(engine->length(sequence), 40);
  const auto again = step(40, 4);
  ASSERT_TRUE(again);
  EXPECT_TRUE(
      bits_equal(*again, Logits(expected.begin() + 40 * values, expected.begin() + 44 * values)));
  plan.fail_at = plan.started + 5;
  ASSERT_FALSE(step(44, 16));
  ASSERT_EQ(engine->length(sequence), 0);
  const auto whole = step(0, 60);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(bits_equal(*whole, expected));
}

TEST(FailingDisk, EndsAnAnswerAndTheNextIsRight) {
  const Model& model = kModels[2];
  const auto resident = open(model, {});
  const auto tokens = random_tokens(40, resident->config().vocab_size, 6);
  const auto expected = generate(*resident, tokens);
  FaultyReader::Plan plan;
  const auto engine = open_with_budget(model, 20, 0, with_faults(plan));
  auto generator = Generator::open(*engine, {DraftMode::fixed, 2});
  ASSERT_TRUE(generator);
  GenerationParameters parameters{.max_tokens = 24};
  parameters.sampling.temperature = 0;
  for (const int64_t number : {0, 3, 100, 500, 900}) {
    plan.fail_at = plan.started + number;
    EXPECT_FALSE(generator->generate(tokens, parameters)) << number;
    plan.fail_at = -1;
    const auto answer = generator->generate(tokens, parameters);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->ids, expected) << number;
  }
}

TEST(StorageOptions, ThatDoNotFitAreRefused) {
  const auto refused = [](EngineOptions options) {
    auto tokenizer = *Tokenizer::load(kModels[0].folder);
    auto engine = make_engine(test::open_checkpoint(kModels[0].folder),
                              engram_token_map(tokenizer)->class_of, options);
    return engine ? std::string() : engine.error().message;
  };
  EngineOptions options{.threads = 1, .max_context = 64};
  options.storage.expert_bytes = 100;
  EXPECT_NE(refused(options).find("the size of one expert, found 100"), std::string::npos);
  options.storage.expert_bytes = int64_t{1} << 20;
  EXPECT_EQ(refused(options), "");
  options.expert_profile = kModels[0].folder / "config.json";
  EXPECT_NE(refused(options).find("config.json: expected an expert profile"), std::string::npos);
  options.storage.expert_bytes.reset();
  EXPECT_NE(refused(options).find("expected an expert cache"), std::string::npos);
  options.expert_profile.clear();
  options.storage.row_bytes = 0;
  options.backend = Backend::reference;
  EXPECT_NE(refused(options).find("expected the cpu backend"), std::string::npos);
}

TEST(SlowDisk, ChangesNoBit) {
  for (const Model& model : kModels) {
    const auto resident = open(model, {});
    const auto tokens = random_tokens(12, resident->config().vocab_size, 7);
    const Logits expected = *run(*resident, tokens, 5);
    FaultyReader::Plan plan;
    plan.late = 5;
    const auto engine = open_with_budget(model, 6, 4096, with_faults(plan));
    const auto logits = run(*engine, tokens, 5);
    ASSERT_TRUE(logits) << logits.error().message;
    EXPECT_TRUE(bits_equal(expected, *logits)) << model.name;
    EXPECT_GT(engine->storage()->statistics().experts->wait_seconds, 0);
  }
}

}  // namespace
}  // namespace cachalot
