// markov_step, draft_confidence: the end of the draft head (spec: model, 10.1).
#pragma once

#include "ops/access.h"
#include "tensor/view.h"

namespace cachalot {

// One link of the Markov chain, for every sequence's block: with t = step == 0 ? ids[s * block] :
// chain[s][step], row r = s * block + step,
//   features[r] = embed[t];  logits[r] += head . features[r] in FP32 from BF16
//   drafts[s][step] = chain[s][step + 1] = argmax(logits[r]), ties to the lower id
// chain is what the next link reads, drafts what came out: the two differ only where a caller
// replaces the chain's tokens. The whole Markov head is read once per link.
struct MarkovStepArgs {
  int64_t step = 0;
  View<const int32_t> ids;  // [sequences * block] the first of each block is the anchor
  View<const bf16> embed;   // [vocab, rank]
  View<const bf16> head;    // [vocab, rank]
  View<int32_t> chain;      // [sequences, block + 1], in and out
  View<bf16> features;      // [sequences * block, rank], in and out (one row a sequence is written)
  View<float> logits;       // [sequences * block, vocab], in and out (likewise)
  View<int32_t> drafts;     // [sequences, block], in and out (one column is written)

  template <class F>
  void fields(F&& f) const {
    f("ids", ids, Access::in);
    f("embed", embed, Access::in);
    f("head", head, Access::in);
    f("chain", chain, Access::inout);
    f("features", features, Access::inout);
    f("logits", logits, Access::inout);
    f("drafts", drafts, Access::inout);
  }
};

// confidence[r] = projection . [x[r]; features[r]], FP32, a raw logit; x before the final norm.
struct DraftConfidenceArgs {
  View<const bf16> x;           // [rows, dim]
  View<const bf16> features;    // [rows, rank]
  View<const bf16> projection;  // [1, dim + rank]
  View<float> confidence;       // [rows], out

  template <class F>
  void fields(F&& f) const {
    f("x", x, Access::in);
    f("features", features, Access::in);
    f("projection", projection, Access::in);
    f("confidence", confidence, Access::out);
  }
};

}  // namespace cachalot
