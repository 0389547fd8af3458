// Steps that fail, as on a disk that does: the request at fault ends, the others do not notice.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/forwarding_engine.h"
#include "engine/scheduler.h"
#include "scheduler_requests.h"

namespace cachalot {
namespace {

using test::alone;
using test::open_nano;
using test::Pending;
using test::request_of;
using test::scheduled_engine;
using test::submit;

// Passes everything on, but steps that append the token `poison` fail, and as after a failing disk
// every sequence of such a step is empty.
class FailingEngine final : public ForwardingEngine {
 public:
  FailingEngine(Engine& inner, int32_t poison) : ForwardingEngine(inner), poison_(poison) {}

  Result<StepResult> step(const StepRequest& request) override {
    const bool poisoned = std::ranges::any_of(request.sequences, [&](const SequenceStep& step) {
      return std::ranges::find(step.tokens, poison_) != step.tokens.end();
    });
    if (!poisoned) return inner().step(request);
    for (const SequenceStep& step : request.sequences) {
      CACHALOT_CHECK(inner().truncate(step.sequence, 0).has_value());
    }
    return fail("experts.bin: cannot be read at 4096");
  }

 private:
  int32_t poison_;
};

TEST(SchedulerFailure, EndsTheRequestAtFaultAlone) {
  constexpr int32_t kPoison = 17;  // no prompt_of() has it
  const auto nano = open_nano(scheduled_engine(4));
  FailingEngine engine(*nano, kPoison);
  Scheduler scheduler(engine, {});
  std::vector<Pending> healthy;
  for (int i = 0; i < 3; ++i) healthy.push_back(submit(scheduler, request_of(i, 30 + 40 * i, 30)));
  GenerationRequest bad = request_of(9, 100, 5);
  bad.prompt[90] = kPoison;
  Pending failing = submit(scheduler, std::move(bad));
  const auto& failed = failing.wait();
  EXPECT_NE(failed.outcome.error.find("experts.bin"), std::string::npos);
  EXPECT_TRUE(failed.ids.empty());
  for (int i = 0; i < 3; ++i) {
    const auto& answer = healthy[static_cast<size_t>(i)].wait();
    EXPECT_EQ(answer.outcome.error, "");
    EXPECT_EQ(answer.ids, alone(request_of(i, 30 + 40 * i, 30))) << i;
  }
  EXPECT_EQ(scheduler.state().failed, 1);
  EXPECT_TRUE(scheduler.state().running.empty());
}

TEST(SchedulerFailure, LeavesNoPagesBehind) {
  const auto nano = open_nano(scheduled_engine(2));
  FailingEngine engine(*nano, 17);
  {
    Scheduler scheduler(engine, {});
    GenerationRequest bad = request_of(9, 100, 5);
    bad.prompt[99] = 17;
    submit(scheduler, std::move(bad)).wait();
    Pending cancelled = submit(scheduler, request_of(1, 300, 100));
    cancelled.ticket.cancel();
    cancelled.wait();
  }
  EXPECT_EQ(nano->pages().free, nano->pages().total);
}

}  // namespace
}  // namespace cachalot
