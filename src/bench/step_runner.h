// Runs one step again and again and notes every operation.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/cpu_info.h"
#include "base/thread_team.h"
#include "bench/bench_model.h"
#include "bench/step_data.h"
#include "bench/step_size.h"
#include "bench/synthetic_caches.h"
#include "ops/timed.h"

namespace cachalot::bench {

struct Repetition {
  std::vector<timed::Record> records;
  std::vector<timed::Range> ranges;
  double seconds = 0;  // of all ranges
  // On a GPU: the operations were timed apart from the step, which took so much more than their sum
  // (as a share of it; below 0 where they overlap).
  std::optional<double> between_operations = {};

  Cost cost() const {
    Cost sum;
    for (const timed::Record& record : records) sum += record.cost;
    return sum;
  }
};

struct RepeatOptions {
  SecondsClock clock = wall_seconds;
  double seconds = 0.5;     // time to spend on a step, more if it takes longer
  int64_t repetitions = 0;  // exactly so many; 0: by time
};

// What the step can cost at most, from shapes alone: nothing runs.
Cost planned_cost(const BenchModel& model, const StepSize& size);

// The first repetition has shapes. Every repetition has other tokens, so that they are routed to
// other experts; one more runs first and is not counted. The caches hold at least the step's
// sequences and positions.
std::vector<Repetition> run_step(const BenchModel& model, const StepSize& size,
                                 const SyntheticCaches& caches, ThreadTeam& team, Isa isa,
                                 const RepeatOptions& options);

}  // namespace cachalot::bench
