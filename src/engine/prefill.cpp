#include "engine/prefill.h"

#include <algorithm>

namespace cachalot {

std::vector<PrefillStep> plan_prefill(PrefillMode mode, const PrefillState& state, int64_t total,
                                      const EngineOptions& options) {
  const int64_t tail = options.shortcut_tail.value_or(0);
  const bool whole =
      mode == PrefillMode::exact || (state.held == state.seen && total - state.held <= tail);
  std::vector<PrefillStep> steps;
  for (int64_t done = state.held; done < total;) {
    const int64_t count = std::min(total - done, options.max_step_tokens);
    steps.push_back({done, count, whole ? StepPart::whole : StepPart::lower, LogitsOf::none});
    done += count;
  }
  if (!whole) {
    const int64_t count = std::min(tail, total - state.seen);
    steps.push_back({total - count, count, StepPart::upper, LogitsOf::none});
  }
  steps.back().logits = LogitsOf::last;
  return steps;
}

}  // namespace cachalot
