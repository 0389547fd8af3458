// Many requests at a time on models/nano: every answer is the one it is alone.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "scheduler_requests.h"

namespace cachalot {
namespace {

using test::alone;
using test::Pending;
using test::request_of;
using test::submit;

std::unique_ptr<Engine> open(int64_t sequences, int64_t step_tokens = 64) {
  return test::open_nano(test::scheduled_engine(sequences, step_tokens));
}

TEST(Scheduler, AnswersUnderLoadAsAlone) {
  constexpr int kRequests = 14;
  const auto request = [](int i) { return request_of(i, 5 + (i * 37) % 150, 8 + i % 5 * 6); };
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(alone(request(i)));
  for (const DraftMode drafts : {DraftMode::off, DraftMode::fixed}) {
    const auto engine = open(6);
    Scheduler scheduler(*engine, {.drafts = {.mode = drafts, .depth = 3}});
    std::vector<Pending> pending;
    for (int i = 0; i < kRequests; ++i) pending.push_back(submit(scheduler, request(i)));
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(pending[i].wait().ids, expected[i]) << "request " << i;
    }
    const SchedulerState state = scheduler.state();
    EXPECT_TRUE(state.running.empty());
    EXPECT_EQ(state.waiting, 0);
    EXPECT_GT(state.busy_slots, 2 * state.steps) << "nothing ran together";
  }
}

TEST(Scheduler, KeepsAnswersGoingWhileALongPromptIsRead) {
  const auto engine = open(2, 16);
  Scheduler scheduler(*engine, {.prompt_rows = 4});
  std::atomic<int> tokens = 0;
  Pending answer = submit(scheduler, request_of(1, 4, 200), [&] { ++tokens; });
  while (tokens == 0) std::this_thread::yield();
  std::atomic<int> before_first = -1;
  Pending prompt = submit(scheduler, request_of(2, 160, 1), [&] { before_first = tokens.load(); });
  prompt.wait();
  // 160 tokens by 4 a step: some forty steps, a token of the answer in each.
  EXPECT_GE(before_first, 30);
  answer.wait();
}

TEST(Scheduler, CancelsWhatWaitsAndWhatRuns) {
  const auto engine = open(1);
  Scheduler scheduler(*engine, {});
  std::latch first_token(1);
  std::atomic<bool> counted = false;
  Pending running = submit(scheduler, request_of(1, 8, 400), [&] {
    if (!counted.exchange(true)) first_token.count_down();
  });
  Pending waiting = submit(scheduler, request_of(2, 8, 400));
  first_token.wait();
  waiting.ticket.cancel();
  EXPECT_EQ(waiting.wait().outcome.finish, FinishReason::cancelled);
  EXPECT_TRUE(waiting.answer->ids.empty());
  running.ticket.cancel();
  EXPECT_EQ(running.wait().outcome.finish, FinishReason::cancelled);
  EXPECT_LT(running.answer->ids.size(), 400U);
  EXPECT_EQ(submit(scheduler, request_of(3, 8, 2)).wait().ids, alone(request_of(3, 8, 2)));
}

TEST(Scheduler, EndsAtTheDeadline) {
  const auto engine = open(1);
  Scheduler scheduler(*engine, {});
  GenerationRequest late = request_of(1, 8, 0);
  late.deadline = SchedulerClock::now();
  EXPECT_EQ(submit(scheduler, std::move(late)).wait().outcome.finish, FinishReason::deadline);
}

TEST(Scheduler, ServesUrgentRequestsFirstAndLosesNothing) {
  const auto engine = open(1);
  Scheduler scheduler(*engine, {});
  std::latch first_token(1);
  std::atomic<bool> counted = false;
  GenerationRequest patient = request_of(4, 20, 60);
  patient.priority = 5;
  Pending slow = submit(scheduler, std::move(patient), [&] {
    if (!counted.exchange(true)) first_token.count_down();
  });
  first_token.wait();
  Pending urgent = submit(scheduler, request_of(5, 20, 5));
  EXPECT_EQ(urgent.wait().ids, alone(request_of(5, 20, 5)));
  EXPECT_EQ(slow.wait().ids, alone(request_of(4, 20, 60)));
  EXPECT_EQ(scheduler.state().preemptions, 1);
}

TEST(Scheduler, RefusesWhatItCannotTake) {
  const auto engine = open(1);
  Scheduler scheduler(*engine, {.max_queue = 2});
  const auto refusal = [&](GenerationRequest request) {
    const auto ticket = scheduler.submit(std::move(request), {});
    return ticket ? std::optional<Refusal::Kind>() : ticket.error().kind;
  };
  EXPECT_EQ(refusal(request_of(1, 512, 1)), Refusal::too_long);
  EXPECT_EQ(refusal(request_of(1, 0, 1)), std::nullopt);
  GenerationRequest unknown = request_of(1, 4, 1);
  unknown.prompt[2] = 1 << 20;
  EXPECT_EQ(refusal(std::move(unknown)), Refusal::invalid);
  GenerationRequest hot = request_of(1, 4, 1);
  hot.parameters.sampling.temperature = 7;
  EXPECT_EQ(refusal(std::move(hot)), Refusal::invalid);
  GenerationRequest empty = request_of(1, 4, 1);
  empty.prompt.clear();
  EXPECT_EQ(refusal(std::move(empty)), Refusal::invalid);

  std::vector<Pending> pending;
  std::optional<Refusal> full;
  for (int i = 0; i < 8 && !full; ++i) {
    GenerationRequest request = request_of(i, 8, 300);
    const auto ticket = scheduler.submit(std::move(request), {});
    if (!ticket) full = ticket.error();
  }
  ASSERT_TRUE(full);
  EXPECT_EQ(full->kind, Refusal::queue_full);
  EXPECT_GT(full->retry_after_seconds, 0);
}

TEST(Scheduler, TakesSeveralRequestsTogetherOrNone) {
  const auto engine = open(1);
  Scheduler scheduler(*engine, {.max_queue = 3});
  const auto submit_all = [&](int count) {
    std::vector<Submission> submissions(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      submissions[static_cast<size_t>(i)].request = request_of(i, 8, 200);
    return scheduler.submit_all(std::move(submissions));
  };
  EXPECT_EQ(scheduler.most_together(), 4);
  const auto never = submit_all(5);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().kind, Refusal::invalid);
  EXPECT_NE(never.error().message.find("5 answers"), std::string::npos) << never.error().message;
  const auto three = submit_all(3);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->size(), 3U);
  const auto full = submit_all(3);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, Refusal::queue_full);
  // Of those that were refused none waits: one more has its place.
  EXPECT_TRUE(submit_all(1));
  std::vector<Submission> mixed(2);
  mixed[0].request = request_of(1, 8, 1);
  EXPECT_EQ(scheduler.submit_all(std::move(mixed)).error().kind, Refusal::invalid);
  for (const Ticket& ticket : *three) ticket.cancel();
  EXPECT_EQ(scheduler.state().refused, 1);
}

TEST(Scheduler, GivesTheLogProbabilitiesOfPromptAndAnswer) {
  const auto engine = open(2, 16);
  Scheduler scheduler(*engine, {});
  GenerationRequest request = request_of(3, 40, 3);
  request.top_logprobs = 2;
  request.prompt_logprobs = true;
  std::vector<GeneratedToken> drawn;
  std::promise<GenerationOutcome> done;
  const std::vector<int32_t> prompt = request.prompt;
  ASSERT_TRUE(scheduler.submit(
      std::move(request), {.on_token =
                               [&](const GeneratedToken& token) {
                                 drawn.push_back(token);
                                 return true;
                               },
                           .on_finish = [&](const auto& outcome) { done.set_value(outcome); }}));
  const GenerationOutcome outcome = done.get_future().get();
  ASSERT_EQ(outcome.prompt.size(), 40U);
  ASSERT_EQ(drawn.size(), 3U);
  // The same by the engine itself, in one step.
  std::vector<int32_t> all = prompt;
  for (const GeneratedToken& token : drawn) all.push_back(token.id);
  const auto other = open(1);
  const auto sequence = other->open_sequence();
  const SequenceStep part{.sequence = *sequence, .tokens = all, .logits = LogitsOf::all};
  const auto step = other->step({.sequences = {&part, 1}});
  ASSERT_TRUE(step);
  const auto vocabulary = static_cast<size_t>(other->config().vocab_size);
  for (size_t i = 1; i < all.size(); ++i) {
    const TokenChances chances(
        std::span(step->logits.row(static_cast<int64_t>(i) - 1), vocabulary));
    const GeneratedToken& token = i < 40 ? outcome.prompt[i] : drawn[i - 40];
    EXPECT_EQ(token.id, all[i]);
    EXPECT_EQ(token.logprob, chances.logprob(all[i])) << i;
    ASSERT_EQ(token.top.size(), 2U);
    EXPECT_EQ(token.top[0].id, chances.best(1)[0].id);
  }
}

TEST(Scheduler, AnswersEverythingBeforeItIsDrained) {
  const auto engine = open(2);
  Scheduler scheduler(*engine, {});
  std::vector<Pending> pending;
  for (int i = 0; i < 6; ++i) pending.push_back(submit(scheduler, request_of(i, 10, 10)));
  scheduler.drain();
  for (Pending& request : pending) EXPECT_EQ(request.wait().outcome.completion_tokens, 10);
  const auto late = scheduler.submit(request_of(1, 4, 1), {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, Refusal::stopping);
}

TEST(Scheduler, RunsWorkAloneBetweenStepsWithoutTouchingAnswers) {
  const auto engine = open(2);
  Scheduler scheduler(*engine, {});
  const auto expected = alone(request_of(1, 40, 60));
  std::vector<Pending> pending;
  for (int i = 0; i < 4; ++i) pending.push_back(submit(scheduler, request_of(1, 40, 60)));
  std::atomic<int> ran = 0;
  for (int i = 0; i < 5; ++i) {
    const auto done = scheduler.run_alone(100, [&](Engine& free) {
      const auto sequence = free.open_sequence();
      ASSERT_TRUE(sequence);
      EXPECT_LE(free.pages_for(*sequence, 100), free.pages().free);
      const std::vector<int32_t> prompt = request_of(9, 30, 1).prompt;
      const SequenceStep part{.sequence = *sequence, .tokens = prompt};
      EXPECT_TRUE(free.step({.sequences = {&part, 1}}));
      free.close_sequence(*sequence);
      ++ran;
    });
    EXPECT_TRUE(done);
  }
  EXPECT_EQ(ran, 5);
  for (Pending& answer : pending) EXPECT_EQ(answer.wait().ids, expected);
  EXPECT_EQ(scheduler.run_alone(513, [](Engine&) {}).error().kind, Refusal::too_long);
  scheduler.drain();
  EXPECT_EQ(scheduler.run_alone(10, [](Engine&) {}).error().kind, Refusal::stopping);
}

}  // namespace
}  // namespace cachalot
