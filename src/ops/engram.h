// engram_hash, engram_gather, engram_mix: memory looked up by n-grams of token classes
// (spec: model, 9.4 and 9.5).
#pragma once

#include "ops/access.h"
#include "tensor/cache_rows.h"
#include "tensor/matrix.h"

namespace cachalot {

// A position inside an image span: no n-gram reaches it or crosses it.
inline constexpr int32_t kDeadClass = -1;

// Writes c[t] = live ? token_map[ids[t]] : kDeadClass into the sequence's history, then per layer
// hashes the n-grams that end at t. For lookback s: blocked becomes and stays true once p - s < 0
// or the class there is dead; class_s = blocked ? pad_class : c[p - s]; h_n = XOR over s < n of
// class_s * multipliers[layer][s] (64-bit); row = h_n mod primes[layer][column] +
// offsets[layer][column], columns ordered by n-gram size, then head. Exact.
struct EngramHashArgs {
  StepRows rows;
  View<const int32_t> ids;          // [tokens]
  View<const int32_t> image_index;  // [tokens] -1 = text = live
  View<const int32_t> token_map;    // [vocab] token -> class
  int32_t pad_class = 0;
  View<const int64_t> multipliers;  // [layers, largest n-gram]
  View<const int64_t> primes;       // [layers, columns]
  View<const int64_t> offsets;      // [layers, columns]
  PagedRows<int32_t> classes;       // one class per position, in and out
  View<int64_t> table_rows;         // [tokens, layers, columns], out

  template <class F>
  void fields(F&& f) const {
    f("positions", rows.positions, Access::in);
    f("slots", rows.slots, Access::in);
    f("first_rows", rows.first_rows, Access::in);
    f("ids", ids, Access::in);
    f("image_index", image_index, Access::in);
    f("token_map", token_map, Access::in);
    f("multipliers", multipliers, Access::in);
    f("primes", primes, Access::in);
    f("offsets", offsets, Access::in);
    f("classes", classes.rows, Access::inout);
    f("page_table", classes.table, Access::in);
    f("table_rows", table_rows, Access::out);
  }
};

// values[t] = the rows table_rows[t][layer], E4M3 * scale -> BF16 (exact), columns one after
// another. Bytes: columns * (width + width / 32) read per token at random addresses.
struct EngramGatherArgs {
  View<const int64_t> table_rows;  // [tokens, layers, columns]
  int64_t layer = 0;               // index among the engram layers
  View<const uint8_t> codes;       // [table rows, width] E4M3
  View<const uint8_t> scales;      // [table rows, width / 32] E8M0
  View<bf16> values;               // [tokens, columns * width], out

  template <class F>
  void fields(F&& f) const {
    f("table_rows", table_rows, Access::in);
    f("codes", codes, Access::in);
    f("scales", scales, Access::in);
    f("values", values, Access::out);
  }
};

// kv = [key per copy, value]. Per copy c, FP32: dot = sum(h * q_weight * k_weight * key)
//   / (sqrt(mean(h^2) + eps) * sqrt(mean(key^2) + eps)) * dim^-0.5
//   gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)), 0 inside an image span
//   stream[c] = RNE_BF16(h + gate * value)
struct EngramMixArgs {
  View<const bf16> kv;              // [tokens, (copies + 1) * dim]
  View<const bf16> q_weight;        // [copies, dim]
  View<const bf16> k_weight;        // [copies, dim]
  View<const int32_t> image_index;  // [tokens] -1 = text
  float norm_eps = 0;
  View<bf16> stream;  // [tokens, copies, dim], in and out

  template <class F>
  void fields(F&& f) const {
    f("kv", kv, Access::in);
    f("q_weight", q_weight, Access::in);
    f("k_weight", k_weight, Access::in);
    f("image_index", image_index, Access::in);
    f("stream", stream, Access::inout);
  }
};

}  // namespace cachalot
