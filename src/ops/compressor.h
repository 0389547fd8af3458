// compress_kv, index_keys: groups of `ratio` tokens become one latent and one index key
// (spec: model, 5).
#pragma once

#include "ops/access.h"
#include "tensor/cache_rows.h"

namespace cachalot {

// Group j covers positions j * ratio .. j * ratio + ratio - 1. A row whose position ends a group
// makes the group's entry, per channel: w = softmax over the group's gates (max subtracted), in
// position order
//   latent = rms_norm(RNE_BF16(sum w * kv), norm)        (ratio 1: RNE_BF16(kv), no gate)
// and stores fp4_e4m3(RoPE(latent) at j * ratio) as entry j. Rows of the group from earlier steps
// come from open_rows[slot][position % open rows]; afterwards this step's last rows are kept there,
// so that a group may complete later and a rollback of a draft block finds what it needs. latent
// rows that end no group are left untouched.
struct CompressKvArgs {
  StepRows rows;
  int64_t ratio = 1;
  View<const float> kv;    // [tokens, head_dim] x . wkv^T
  View<const float> gate;  // [tokens, head_dim] x . wgate^T; absent at ratio 1
  View<float>
      open_rows;  // [slots, open rows, 2, head_dim] kv then gate, in and out; absent at ratio 1
  View<const bf16> norm;  // [head_dim]
  float norm_eps = 0;
  View<const float> frequencies;  // [rotated / 2]
  View<bf16> latent;              // [tokens, head_dim] normed, before RoPE, out
  PagedRows<uint8_t> latents;     // rows of latent_row_bytes, in and out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("kv", kv, Access::in);
    f("gate", gate, Access::in);
    f("open_rows", open_rows, Access::inout);
    f("norm", norm, Access::in);
    f("frequencies", frequencies, Access::in);
    f("latent", latent, Access::inout);
    f("latents", latents.rows, Access::inout);
    f("page_table", latents.table, Access::in);
  }
};

// For every row that ends a group: key = rms_norm(RNE_BF16(latent . wk^T), norm), rotated at
// j * ratio, quantized to FP4 with E8M0 scales per 32, stored as entry j.
struct IndexKeysArgs {
  StepRows rows;
  int64_t ratio = 1;
  View<const bf16> latent;  // [tokens, head_dim] as compress_kv leaves it
  View<const bf16> weight;  // wk [width, head_dim]
  View<const bf16> norm;    // [width]
  float norm_eps = 0;
  View<const float> frequencies;  // [rotated / 2]
  PagedRows<uint8_t> keys;        // rows of index_key_row_bytes, in and out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("latent", latent, Access::in);
    f("weight", weight, Access::in);
    f("norm", norm, Access::in);
    f("frequencies", frequencies, Access::in);
    f("keys", keys.rows, Access::inout);
    f("page_table", keys.table, Access::in);
  }
};

}  // namespace cachalot
