// keep_stream, resume_stream: the residual stream at the input of one layer, kept for the tail of a
// prompt, so that the layers from there on can run later (spec: model, 11.2).
#pragma once

#include "ops/access.h"
#include "tensor/cache_rows.h"

namespace cachalot {

// At ring row position % ring rows of the row's slot: copies = stream[t], mixes = mix[t], for every
// sequence's last `ring rows` tokens of this step. Exact.
struct KeepStreamArgs {
  StepRows rows;
  View<const bf16> stream;  // [tokens, copies, dim]
  View<const float> mix;    // [tokens, copies]
  View<bf16> kept_copies;   // [slots, ring rows, copies, dim], in and out
  View<float> kept_mixes;   // [slots, ring rows, copies], in and out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("stream", stream, Access::in);
    f("mix", mix, Access::in);
    f("kept_copies", kept_copies, Access::inout);
    f("kept_mixes", kept_mixes, Access::inout);
  }
};

// The way back, for positions that are still kept. Exact.
struct ResumeStreamArgs {
  StepRows rows;
  View<const bf16> kept_copies;  // [slots, ring rows, copies, dim]
  View<const float> kept_mixes;  // [slots, ring rows, copies]
  View<bf16> stream;             // [tokens, copies, dim], out
  View<float> mix;               // [tokens, copies], out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("kept_copies", kept_copies, Access::in);
    f("kept_mixes", kept_mixes, Access::in);
    f("stream", stream, Access::out);
    f("mix", mix, Access::out);
  }
};

}  // namespace cachalot
