// The speculative cycle: a block of drafts, checked by the target in one step (spec: model, 10.2).
//
// Greedy drafts (method b): every token is drawn from the target's own logits exactly as without
// drafts, in order and by the same random numbers; a draft only saves a step when it happens to be
// what was drawn. So the text is the plain text token for token, greedy or sampled, at every depth.
// Probabilistic drafts (method a): see accept_or_replace; every token is distributed as in plain
// sampling. What is drawn depends on the seed, the depth and the sequence alone, not on the batch.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/draft_depth.h"
#include "engine/engine.h"
#include "engine/sampler.h"

namespace cachalot {

struct CycleRequest {
  int32_t sequence = 0;
  int32_t anchor = 0;  // the last token of the answer, not in the caches yet
  Sampler* sampler = nullptr;
  DraftDepth* depth = nullptr;  // names the method, too
  int64_t most_tokens = 1;      // of the answer, at least 1: drafts beyond are not worth a row
  // Called by the thread that asks for the cycle; tokens of requests may be drawn at the same time.
  // Takes every token that is drawn and the row of logits [vocab] it came from, which may be empty
  // unless `wants_logits`; false ends the cycle with it.
  std::function<bool(int32_t token, std::span<const float> logits)> take;
  bool wants_logits = false;

  // Whether the target's best tokens are all that is asked of it.
  bool best_only() const {
    return !wants_logits && depth->method() == DraftMethod::greedy && sampler->takes_best();
  }
};

struct CycleResult {
  std::vector<int32_t> tokens;  // drawn, the last one is the next anchor
  int64_t drafted = 0;          // drafts the target checked
  int64_t accepted = 0;
  Status status;  // this sequence's: a row of logits was unusable
};

struct CycleStep {
  std::vector<CycleResult> cycles;  // of the requests, in order
  View<const float> prompt_logits;  // [rows, vocab]: what `prompts` asked for, in order
};

// One cycle of every request, one draft chain and one step for all of them. Afterwards a sequence
// holds its anchor and the accepted drafts. The step also appends `prompts`, parts of prompts of
// other sequences, with the rows of
// their pictures; there may be no requests then. Drafts of greedy requests make do with the rows
// that prompts leave; those of probabilistic ones need max_step_tokens / max_sequences each.
// Errors (nothing changed): see Engine::step and Engine::draft.
Result<CycleStep> speculative_cycle(Engine& engine, StepCosts& costs,
                                    std::span<const CycleRequest> requests, bool feed_drafts,
                                    std::span<const SequenceStep> prompts = {},
                                    View<const bf16> image_rows = {});

}  // namespace cachalot
