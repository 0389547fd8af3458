// One step of the model: which tokens of which sequences. Two kinds of data, two types.
#pragma once

#include "tensor/cache_rows.h"

namespace cachalot {

// Which layers a step runs (model/prefill_shortcut.h).
enum class StepPart { whole, lower, upper };

// Host integers: all that model code may branch on, and the key of a captured graph.
struct StepShape {
  int64_t tokens = 0;
  int64_t outputs = 0;      // rows whose logits are wanted
  bool draft_taps = false;  // feed the draft stages' windows with this step
  int64_t draft_block = 0;  // rows per draft block, 0: the step extends its sequences
  StepPart part = StepPart::whole;
  bool takes_drafts = false;  // some ids are those of drafts (StepInputs::drafts)
};

// Arrays at fixed addresses, unreadable to model code.
struct StepInputs {
  StepRows rows;
  View<const int32_t> ids;          // [tokens]
  View<const int32_t> image_index;  // [tokens] row of image_rows, -1 for text
  View<const bf16> image_rows;      // [image tokens, dim], may be absent
  View<const int32_t> output_rows;  // [outputs]
  View<const int32_t> page_table;   // [slots, pages per slot]
  // With takes_drafts, for take_drafts (ops/tokens.h): where among `drafts` a token's id is, -1: it
  // is in `ids`.
  View<const int32_t> draft_places;  // [tokens]
  View<const int32_t> drafts;        // [drafts]
  // [tokens] the first position the windows of the upper layers hold; absent: 0 everywhere.
  View<const int32_t> window_starts;
};

struct StepOutputs {
  View<float> logits;  // [outputs, vocab]
  View<int32_t> best;  // [outputs] the best token of each row, see best_tokens (ops/tokens.h)
  View<bf16> taps;     // [tokens, targets, dim]; absent unless draft_taps
};

// What the draft head proposes after each sequence's anchor.
struct DraftOutputs {
  View<int32_t> tokens;    // [sequences, block]
  View<float> logits;      // [sequences * block, vocab] with the Markov bias
  View<float> confidence;  // [sequences * block] raw logits
};

}  // namespace cachalot
