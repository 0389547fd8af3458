// index_select: which compressed entries a token attends to (spec: model, 6).
#pragma once

#include "ops/access.h"
#include "tensor/cache_rows.h"

namespace cachalot {

// How an index layer stands to the two-level selection.
enum class CandidateUse {
  none,   // below the candidate source, or no second level
  build,  // the candidate source: chooses freely, leaves its best blocks behind
  use,    // above it: chooses among the candidates of the same token
};

// The row at position p sees entries j < (p + 1) / ratio (integer division).
//   iq = fp4_e8m0(RoPE(q) at p);  w[h] = RNE_BF16(weights[h] * weight_scale)
//   score[j] = sum_h w[h] * max(iq[h] . key[j], 0), FP32, h ascending
// chosen = the `top k` best, ties to the lower index, ascending, then -1.
// build: blocks of candidate_block entries score their maximum; the block with the newest visible
// entry always qualifies; candidates = the best blocks (ties to the lower), ascending, then -1.
// use: only entries inside the row's candidate blocks qualify.
struct IndexSelectArgs {
  StepRows rows;
  int64_t ratio = 1;
  View<const bf16> q;             // [tokens, heads, width] before rotation
  View<const bf16> weights;       // [tokens, heads] weights_proj x
  float weight_scale = 0;         // width^-0.5 * heads^-0.5
  View<const float> frequencies;  // [rotated / 2]
  PagedRows<const uint8_t> keys;  // rows of index_key_row_bytes, of the layer's own KV source
  CandidateUse candidate_use = CandidateUse::none;
  int64_t candidate_block = 0;  // entries per block
  View<int32_t> candidates;  // [tokens, candidate blocks]; out for build, in for use, else absent
  View<int32_t> chosen;      // [tokens, top k], out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("q", q, Access::in);
    f("weights", weights, Access::in);
    f("frequencies", frequencies, Access::in);
    f("keys", keys.rows, Access::in);
    f("page_table", keys.table, Access::in);
    f("candidates", candidates, candidate_use == CandidateUse::build ? Access::out : Access::in);
    f("chosen", chosen, Access::out);
  }
};

}  // namespace cachalot
