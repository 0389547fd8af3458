// Which steps a prompt takes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace cachalot {

enum class PrefillMode {
  exact,     // all layers for all tokens
  shortcut,  // the layers above the last KV source for the prompt's tail (spec: model, 11.2)
};

// How far a sequence is: `held` tokens, of which the upper layers have seen `seen`.
struct PrefillState {
  int64_t held = 0;
  int64_t seen = 0;
};

struct PrefillStep {
  int64_t first = 0, count = 0;  // tokens of the prompt
  StepPart part = StepPart::whole;
  LogitsOf logits = LogitsOf::none;
};

// The steps from there to `total` tokens and the last one's logits. The shortcut is not taken where
// it saves nothing, for tokens that fit in the tail and follow on what the upper layers have seen:
// whole steps, exact. exact: held == seen.
std::vector<PrefillStep> plan_prefill(PrefillMode mode, const PrefillState& state, int64_t total,
                                      const EngineOptions& options);

}  // namespace cachalot
