// Runs one step on a GPU again and again, as a whole and in parts.
//
// A device only starts operations when it is asked to, so they are timed apart from the step: a
// short step's (decode, a block of drafts) as graphs of all calls that make up one row, whose
// weights are of all layers and so larger than any cache; a long step's one after another between
// two marks of the device's clock.
#pragma once

#include "bench/step_runner.h"

namespace cachalot::bench {

// Like run_step. The model and the caches lie in device memory. Errors: a logit is not finite.
Result<std::vector<Repetition>> run_step_on_gpu(const BenchModel& model, const StepSize& size,
                                                const SyntheticCaches& caches,
                                                const RepeatOptions& options);

}  // namespace cachalot::bench
