// best_tokens, take_drafts: where a step ends in token ids and where one begins with them.
#pragma once

#include "ops/access.h"
#include "tensor/view.h"

namespace cachalot {

// best[i] = argmax(logits[i]), ties to the lower id; -1 for a row that means nothing: one with NaN
// or +inf in it, or with nothing but -inf. What greedy decoding needs of the logits.
struct BestTokensArgs {
  View<const float> logits;  // [rows, vocab]
  View<int32_t> best;        // [rows], out

  template <class F>
  void fields(F&& f) const {
    f("logits", logits, Access::in);
    f("best", best, Access::out);
  }
};

// ids[t] = drafts[places[t]], or given[t] where places[t] is -1: the tokens of a step that checks
// drafts which the host has not seen.
struct TakeDraftsArgs {
  View<const int32_t> given;   // [tokens]
  View<const int32_t> places;  // [tokens] -1 or in [0, drafts)
  View<const int32_t> drafts;  // [drafts]
  View<int32_t> ids;           // [tokens], out

  template <class F>
  void fields(F&& f) const {
    f("given", given, Access::in);
    f("places", places, Access::in);
    f("drafts", drafts, Access::in);
    f("ids", ids, Access::out);
  }
};

}  // namespace cachalot
