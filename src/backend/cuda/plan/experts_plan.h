// How moe_experts cuts its work: which rows share a tile, and how many tiles and items there are.
// A token's result depends on none of this: an element's sum is the same in a tile of any width.
#pragma once

#include <cstdint>

#include "backend/cuda/plan/experts_layout.h"

namespace cachalot::cuda {

// Matrix rows are multiplied 64 at a time by one warpgroup, two of which work on an item. Rows
// ("columns" of the products) that chose the same expert form tiles.
//   narrow  up to 16 of them: the matrix is streamed past them, 128 matrix rows an item, two blocks
//           a multiprocessor so that one computes while the other waits for memory
//   wide    up to 144, 256 matrix rows an item: they are read again for every item, so the item is
//           as high as the registers allow. 128 rows per expert is what a chunk of 8192 tokens
//           brings; 144 holds the most of what chance makes of 128 (12 % over: 1.4 deviations).
inline constexpr int kNarrowColumns = 16;
inline constexpr int kWideColumns = 144;
// Where an expert has so many rows on average, a tile takes up to 160, with one place less to fill
// ahead: so nearly all experts have one tile. With fewer on average chance makes hardly any expert
// exceed 144. Of the shared expert, whose matrices take twice the room, a tile has up to 152 then.
inline constexpr int kManyRows = 120;
inline constexpr int kManyColumns = 160;
inline constexpr int kManySharedColumns = 152;
inline constexpr int kNarrowRows = 128;
// w2 for tiles of so few rows, where there are few items.
inline constexpr int kLowColumns = 8;
inline constexpr int kLowRows = 64;
inline constexpr int kWideRows = 256;
// Rows lie in atoms of so many, and every tile begins with one (moe_experts_parts.h).
inline constexpr int kAtomRows = 8;
inline constexpr int kLaterTokens = 1024;

constexpr int64_t in_whole_atoms(int64_t rows) {
  return (rows + kAtomRows - 1) / kAtomRows * kAtomRows;
}

constexpr int64_t tiles_of(int64_t columns, int64_t most) { return (columns + most - 1) / most; }

// Columns per tile when `columns` are divided evenly, but for whole atoms; the last may have fewer.
// `most` is a multiple of an atom's rows, so none is empty.
constexpr int64_t columns_per_tile(int64_t columns, int64_t most) {
  const int64_t tiles = tiles_of(columns, most);
  return tiles == 0 ? 0 : in_whole_atoms((columns + tiles - 1) / tiles);
}

// What tile of the matrix instruction holds so many columns.
constexpr int narrow_class(int columns) { return columns <= 8 ? 8 : 16; }
constexpr int wide_class(int columns) { return columns <= 32 ? 32 : (columns + 15) / 16 * 16; }
// Of many rows steps are smaller: nearly all tiles are of these widths.
constexpr int many_class(int columns) {
  return columns <= 96 ? wide_class(columns) : (columns + 7) / 8 * 8;
}

// How the tokens of a step visit the shared expert, and how many tiles the routed ones may need:
// all that the host may know.
struct ExpertsPlan {
  int64_t tokens, choices, experts;

  constexpr int64_t pairs() const { return tokens * choices; }
  // A step of so few tokens has no wide tiles.
  constexpr bool any_wide() const { return tokens > kNarrowColumns; }
  constexpr bool many_rows() const { return pairs() >= kManyRows * experts; }
  constexpr int64_t wide_columns() const { return many_rows() ? kManyColumns : kWideColumns; }
  // So many that the routed rows are copied beside the shared expert's products
  // (moe_experts_later_rows.cuh).
  constexpr bool rows_later() const { return tokens >= kLaterTokens; }
  constexpr int64_t most_shared_columns() const {
    return many_rows() ? kManySharedColumns : kWideColumns;
  }
  constexpr int64_t shared_tiles() const {
    return any_wide() ? tiles_of(tokens, most_shared_columns()) : 1;
  }
  constexpr int64_t shared_columns() const {
    return any_wide() ? columns_per_tile(tokens, most_shared_columns()) : tokens;
  }
  // Experts ascend, the rows of each from a multiple of kAtomRows on; then, from a place that does
  // not depend on who chose what, the tokens once more, as rows of the shared expert.
  constexpr int64_t shared_row() const {
    return in_whole_atoms(pairs() + (kAtomRows - 1) * (pairs() < experts ? pairs() : experts));
  }
  constexpr int64_t row_capacity() const { return shared_row() + in_whole_atoms(tokens); }
  constexpr int64_t most_narrow_tiles() const { return pairs() < experts ? pairs() : experts; }
  // An expert's last tile may be nearly empty; only experts with over kNarrowColumns rows count.
  constexpr int64_t most_wide_tiles() const {
    const int64_t wide_experts = pairs() / (kNarrowColumns + 1);
    return pairs() / kWideColumns + (wide_experts < experts ? wide_experts : experts);
  }
};

}  // namespace cachalot::cuda
