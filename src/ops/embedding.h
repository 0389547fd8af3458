// embed: token ids -> the residual stream.
#pragma once

#include "ops/access.h"
#include "tensor/view.h"

namespace cachalot {

// stream[t][c] = table[ids[t]] for every copy c, or image_rows[image_index[t]] where that is >= 0;
// pre[t] = one-hot on copy 0, the mix that collapses the copies for the first attention.
// Exact. Bytes: tokens * dim * 2 read, tokens * copies * dim * 2 written.
struct EmbedArgs {
  View<const int32_t> ids;          // [tokens] in [0, vocab)
  View<const int32_t> image_index;  // [tokens] row of image_rows, -1 for text
  View<const bf16> image_rows;      // [image tokens, dim], may be absent
  View<const bf16> table;           // [vocab, dim]
  View<bf16> stream;                // [tokens, copies, dim], out
  View<float> pre;                  // [tokens, copies], out

  template <class F>
  void fields(F&& f) const {
    f("ids", ids, Access::in);
    f("image_index", image_index, Access::in);
    f("image_rows", image_rows, Access::in);
    f("table", table, Access::in);
    f("stream", stream, Access::out);
    f("pre", pre, Access::out);
  }
};

}  // namespace cachalot
