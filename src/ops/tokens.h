// best_tokens: where a step ends in token ids.
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

}  // namespace cachalot
