// prepare_query, sparse_attention, write_window (spec: model, 4 and 4.1).
//
// Rotary embedding: on the last 2 * frequencies channels, adjacent pairs (2i, 2i + 1), angle =
// float(position) * frequencies[i] in FP32, cosine and sine in FP32 or wider; the rotated channels
// are rounded to BF16, the others stay.
#pragma once

#include "ops/access.h"
#include "tensor/cache_rows.h"

namespace cachalot {

// Rotates q in place at its position; rotates kv and quantizes all of it to FP8 in groups of 32
// into packed window rows (key and value in one). Without q only the window rows are made.
struct PrepareQueryArgs {
  StepRows rows;
  View<const float> frequencies;  // [rotated / 2]
  View<bf16> q;                   // [tokens, heads, head_dim], in and out, may be absent
  View<const bf16> kv;            // [tokens, head_dim] after kv_norm
  View<uint8_t> window_rows;      // [tokens, window_row_bytes(head_dim)], out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("frequencies", frequencies, Access::in);
    f("q", q, Access::inout);
    f("kv", kv, Access::in);
    f("window_rows", window_rows, Access::out);
  }
};

// Row t at position p attends to the window, positions max(0, p - window + 1)..p, then to the
// chosen latents in ascending order. A window position computed in this step comes from
// window_rows, an earlier one from ring[slot][position % ring rows].
//   S = (q . K) * scale;  m = max S;  e = exp(S - m)
//   o = RNE_BF16((sum RNE_BF16(e) K) / (sum e + exp(sink[h] - m))),  then rotated back at p
//   (inverse).
// m is the maximum over all keys of the row (not over a tile); key order and lane order are fixed.
// With `block` > 0 the step holds draft blocks of that many rows per sequence: every row sees the
// window that ends before its block, positions max(0, start - window)..start - 1, and the whole
// block.
// With `window_starts` (at most the sequence's first position in the step) no window position
// before window_starts[t] is seen: the ring does not hold them, because the upper layers ran over a
// prompt's tail alone (spec: model, 11.2).
struct SparseAttentionArgs {
  StepRows rows;
  View<const bf16> q;               // [tokens, heads, head_dim] rotated
  View<const uint8_t> window_rows;  // [tokens, window_row_bytes] this step's
  View<const uint8_t> ring;         // [slots, ring rows, window_row_bytes]
  int64_t window = 0;
  int64_t block = 0;                  // rows per draft block, 0: causal
  View<const int32_t> window_starts;  // [tokens], may be absent
  View<const int32_t> chosen;         // [tokens, top k] entries, ascending, then -1; may be absent
  PagedRows<const uint8_t> latents;   // rows of latent_row_bytes; absent with chosen
  View<const float> sink;             // [heads]
  View<const float> frequencies;      // [rotated / 2]
  float scale = 0;                    // head_dim^-0.5
  View<bf16> o;                       // [tokens, heads, head_dim], out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("q", q, Access::in);
    f("window_rows", window_rows, Access::in);
    f("ring", ring, Access::in);
    f("window_starts", window_starts, Access::in);
    f("chosen", chosen, Access::in);
    f("latents", latents.rows, Access::in);
    f("page_table", latents.table, Access::in);
    f("sink", sink, Access::in);
    f("frequencies", frequencies, Access::in);
    f("o", o, Access::out);
  }
};

// ring[slot][position % ring rows] = window_rows[t] for every sequence's last `ring rows` tokens of
// this step. After attention, because a chunk may be longer than the ring and its first rows still
// need the rows it overwrites.
struct WriteWindowArgs {
  StepRows rows;
  View<const uint8_t> window_rows;  // [tokens, window_row_bytes]
  View<uint8_t> ring;               // [slots, ring rows, window_row_bytes], in and out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("window_rows", window_rows, Access::in);
    f("ring", ring, Access::inout);
  }
};

}  // namespace cachalot
