// Which steps are too large to run, from shapes alone.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_model.h"
#include "bench/step_size.h"

namespace cachalot::bench {

// Errors: more positions or tokens than the model takes. A model of fewer than 1M positions may
// still be asked for so many: its steps are measured, its answers are not.
Status check_sizes(const StepChoice& choice, const ModelConfig& config);

// What a step's caches, as SyntheticCaches fills them in the machine's memory, and its workspace
// take.
int64_t planned_bytes(const BenchModel& model, const StepSize& size);

// Removes the steps that take more than `memory` bytes; a note for each.
std::vector<std::string> leave_out_what_does_not_fit(const BenchModel& model, int64_t memory,
                                                     std::vector<StepSize>& sizes);

}  // namespace cachalot::bench
