// The names of a benchmark's rows, found by planning its steps: a filter that no row matches is
// refused before anything is measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/meta/queue.h"
#include "bench/bench_model.h"
#include "bench/step_size.h"
#include "ops/timed.h"
#include "ops/watcher.h"

namespace cachalot::bench {

// What rows are named by, of every operation a meta::Queue is given.
class PlannedCalls final : public OperationWatcher {
 public:
  struct Call {
    std::string_view operation, variant;
    const void* weight = nullptr;
  };

#define CACHALOT_NOTE_CALL(function, Args) \
  void before(const Args& args) override { note(#function, args); }
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_NOTE_CALL)
#undef CACHALOT_NOTE_CALL

  const std::vector<Call>& calls() const { return calls_; }

 private:
  template <class Args>
  void note(std::string_view operation, const Args& args) {
    Call call{operation, timed::variant_of(args)};
    if constexpr (requires { timed::address_of(args.weight); }) {
      call.weight = timed::address_of(args.weight);
    }
    calls_.push_back(call);
  }

  std::vector<Call> calls_;
};

// Bytes of workspace that the step takes.
int64_t planned_workspace(const BenchModel& model, const StepSize& size);

// Whether a row of this step can match the filter (row_matches); true when in doubt. Finer than
// step_can_match().
bool any_row_can_match(const BenchModel& model, const StepSize& size, const std::string& filter);

}  // namespace cachalot::bench
