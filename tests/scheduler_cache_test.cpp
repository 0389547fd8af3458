// What requests leave to each other in the prefix cache changes how long they take, never what they
// say.
#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "scheduler_requests.h"

namespace cachalot {
namespace {

using test::alone;
using test::open_nano;
using test::Pending;
using test::prompt_of;
using test::request_of;
using test::scheduled_engine;
using test::submit;

constexpr int64_t kPlenty = 64 << 20;

// Pages beside those of the sequences.
EngineOptions with_pages(EngineOptions options, int64_t pages) {
  options.cache_pages = pages;
  return options;
}

SchedulerOptions cached(DraftMode drafts = DraftMode::off) {
  SchedulerOptions options;
  options.drafts = {.mode = drafts, .depth = 3};
  options.cache.bytes = kPlenty;
  return options;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(SchedulerCache, AnswersAgainWithoutReadingThePromptAgain) {
  for (const DraftMode drafts : {DraftMode::off, DraftMode::fixed}) {
    const auto engine = open_nano(with_pages(scheduled_engine(4), 32));
    Scheduler scheduler(*engine, cached(drafts));
    for (const int64_t length : {2, 17, 128, 300}) {
      const int seed = static_cast<int>(length);
      const auto cold = submit(scheduler, request_of(seed, length, 12)).wait();
      const auto warm = submit(scheduler, request_of(seed, length, 12)).wait();
      EXPECT_EQ(cold.ids, alone(request_of(seed, length, 12)));
      EXPECT_EQ(warm.ids, cold.ids);
      // The first token is the same in all of them.
      EXPECT_LE(cold.outcome.cached_tokens, 1);
      EXPECT_EQ(warm.outcome.cached_tokens, length - 1);
    }
  }
}

TEST(SchedulerCache, GoesOnWithAConversationWhereItEnded) {
  const auto engine = open_nano(with_pages(scheduled_engine(2), 32));
  Scheduler scheduler(*engine, cached());
  std::vector<int32_t> text = prompt_of(1, 60);
  for (int turn = 0; turn < 4; ++turn) {
    const auto answer = submit(scheduler, request_of(text, 10, turn)).wait();
    EXPECT_EQ(answer.ids, alone(request_of(text, 10, turn)));
    // All but the last token of the answer before, which no step has seen.
    EXPECT_EQ(answer.outcome.cached_tokens, turn == 0 ? 0 : std::ssize(text) - 5 - 1);
    text = joined(joined(text, answer.ids), prompt_of(turn + 10, 5));
  }
}

TEST(SchedulerCache, ReadsAPromptOnceForSeveralAnswers) {
  const auto engine = open_nano(with_pages(scheduled_engine(8), 64));
  Scheduler scheduler(*engine, cached());
  std::vector<Pending> pending;
  for (uint32_t choice = 0; choice < 8; ++choice) {
    GenerationRequest request = request_of(7, 200, 10);
    request.parameters.choice = choice;
    pending.push_back(submit(scheduler, std::move(request)));
  }
  for (uint32_t choice = 0; choice < 8; ++choice) {
    GenerationRequest request = request_of(7, 200, 10);
    request.parameters.choice = choice;
    EXPECT_EQ(pending[choice].wait().ids, alone(request)) << choice;
  }
  EXPECT_EQ(scheduler.state().prompt_tokens, 8 * 200);
  EXPECT_EQ(scheduler.state().cached_tokens, 7 * 199);
}

TEST(SchedulerCache, SavesAStateWherePromptsPart) {
  const auto engine = open_nano(with_pages(scheduled_engine(2), 64));
  Scheduler scheduler(*engine, cached());
  const std::vector<int32_t> system = prompt_of(3, 150);
  int64_t found = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int32_t> prompt = joined(system, prompt_of(20 + i, 40));
    const auto answer = submit(scheduler, request_of(prompt, 6, 2)).wait();
    EXPECT_EQ(answer.ids, alone(request_of(prompt, 6, 2)));
    found = answer.outcome.cached_tokens;
  }
  // The second found out where they part (all prompts here begin with token 0).
  EXPECT_GE(found, 150);
}

TEST(SchedulerCache, WaitsForAPromptThatIsBeingRead) {
  const auto engine = open_nano(with_pages(scheduled_engine(4, 32), 64));
  Scheduler scheduler(*engine, cached());
  const std::vector<int32_t> system = prompt_of(3, 200);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Pending> pending;
  for (int i = 0; i < 4; ++i) {
    prompts.push_back(joined(system, prompt_of(20 + i, 30)));
    pending.push_back(submit(scheduler, request_of(prompts.back(), 6, 1)));
  }
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(pending[i].wait().ids, alone(request_of(prompts[i], 6, 1)));
  EXPECT_GE(scheduler.state().cached_tokens, 3 * 200);
}

TEST(SchedulerCache, AnswersRightWhenPagesRunOut) {
  // Four sequences of up to 512 tokens share three pages: one page is 256 tokens, two at most are
  // one sequence's.
  const auto engine = open_nano(with_pages(scheduled_engine(4), 3));
  Scheduler scheduler(*engine, cached());
  std::vector<Pending> pending;
  const auto request = [](int i) { return request_of(i, 230 - i, 40); };
  for (int i = 0; i < 6; ++i) pending.push_back(submit(scheduler, request(i)));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(pending[static_cast<size_t>(i)].wait().ids, alone(request(i))) << i;
  }
  EXPECT_GT(scheduler.state().preemptions, 0);
}

TEST(SchedulerCache, NeverGoesOnFromAShortcutExactly) {
  EngineOptions options = with_pages(scheduled_engine(2), 32);
  options.shortcut_tail = 16;
  const auto engine = open_nano(options);
  Scheduler scheduler(*engine, cached());
  GenerationRequest shortcut = request_of(1, 200, 8);
  shortcut.parameters.prefill = PrefillMode::shortcut;
  submit(scheduler, std::move(shortcut)).wait();
  const auto exact = submit(scheduler, request_of(1, 200, 8)).wait();
  EXPECT_EQ(exact.ids, alone(request_of(1, 200, 8)));
  EXPECT_EQ(exact.outcome.cached_tokens, 0);
  // But the other way round.
  GenerationRequest again = request_of(1, 200, 8);
  again.parameters.prefill = PrefillMode::shortcut;
  const auto warm = submit(scheduler, std::move(again)).wait();
  EXPECT_EQ(warm.outcome.cached_tokens, 199);
  EXPECT_EQ(warm.ids, exact.ids);
}

TEST(SchedulerCache, IsLeftAloneByThoseWhoAskFor) {
  const auto engine = open_nano(with_pages(scheduled_engine(2), 32));
  Scheduler scheduler(*engine, cached());
  GenerationRequest shy = request_of(1, 100, 4);
  shy.reuse_cache = false;
  submit(scheduler, std::move(shy)).wait();
  EXPECT_EQ(submit(scheduler, request_of(1, 100, 4)).wait().outcome.cached_tokens, 0);
  GenerationRequest echo = request_of(1, 100, 4);
  echo.top_logprobs = 0;
  echo.prompt_logprobs = true;
  const auto answer = submit(scheduler, std::move(echo)).wait();
  EXPECT_EQ(answer.outcome.cached_tokens, 0);
  EXPECT_EQ(answer.outcome.prompt.size(), 100U);
}

}  // namespace
}  // namespace cachalot
