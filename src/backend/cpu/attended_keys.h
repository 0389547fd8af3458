// What a row of sparse_attention attends to, and how its outputs are rotated: shared by the ways of
// computing them (sparse_attention.cpp, tile_attention.cpp).
#pragma once

#include <algorithm>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/row_tasks.h"
#include "ops/attention.h"

namespace cachalot::cpu {

inline int64_t most_keys(const SparseAttentionArgs& args) {
  return args.window + args.block + (args.chosen.present() ? args.chosen.extent(1) : 0);
}

// Distance between rows of scores, a little more than a power of two: such rows would share a few
// sets of the first-level cache.
inline int64_t score_stride(int64_t keys) { return divide_up(keys, 16) * 16 + 16; }

struct Range {
  int64_t first, count;
};

// What a row attends to: window rows, then latents.
struct Keys {
  int64_t position = 0;  // of the first window row
  int64_t window = 0, count = 0;
  const uint8_t** rows;  // [count], once found
};

inline Keys keys_of(const SparseAttentionArgs& args, int64_t t, const uint8_t** rows) {
  const int64_t start = args.rows.start_of(t);
  const int64_t end = args.block > 0 ? start + args.block : args.rows.positions.data[t] + 1;
  const int64_t reach = args.block > 0 ? start - args.window : end - args.window;
  const int64_t held = args.window_starts.present() ? args.window_starts.data[t] : 0;
  Keys keys{.position = std::max({int64_t{0}, reach, held}), .rows = rows};
  keys.count = keys.window = std::max<int64_t>(end - keys.position, 0);
  if (args.chosen.absent()) return keys;
  const int32_t* chosen = args.chosen.row(t);
  const int32_t* last = std::partition_point(chosen, chosen + args.chosen.extent(1),
                                             [](int32_t entry) { return entry >= 0; });
  keys.count += last - chosen;
  return keys;
}

// Finds some of the packed rows that row t attends to.
inline void find_keys(const SparseAttentionArgs& args, int64_t t, Range which, const Keys& keys) {
  const int64_t start = args.rows.start_of(t), first_row = args.rows.first_rows.data[t];
  const int64_t ring_rows = args.ring.extent(1), row_bytes = args.ring.extent(2);
  const int32_t slot = args.rows.slots.data[t];
  // A division of 32 bits takes a fraction of the time of one of 64.
  const auto ring_size = static_cast<uint32_t>(ring_rows);
  for (int64_t k = which.first; k < which.first + which.count; ++k) {
    if (k >= keys.window) {
      keys.rows[k] = args.latents.row(slot, args.chosen.row(t)[k - keys.window]);
      continue;
    }
    const int64_t p = keys.position + k;
    keys.rows[k] = p >= start
                       ? args.window_rows.row(first_row + p - start)
                       : args.ring.row(slot) + static_cast<uint32_t>(p) % ring_size * row_bytes;
  }
}

// Rotates those of some channels of a head that are rotated.
inline void rotate_channels(const RowKernels& rows, Range channels, int64_t head_dim,
                            const Rotation& turn, bf16* o) {
  const int64_t end = channels.first + channels.count, rotated = head_dim - 2 * turn.pairs;
  const int64_t first = std::max(channels.first, rotated);
  if (first >= end) return;
  const int64_t skipped = (first - rotated) / 2;
  rows.rotate(o + first, end - first, turn.cosine + skipped, turn.sine + skipped,
              (end - first) / 2);
}

}  // namespace cachalot::cpu
