// How a product of BF16 inputs with a weight matrix is cut into work for the multiprocessors.
//
// What decides the bits of a result follows from the weight's shape alone: `segments`, the parts
// of K that are summed by themselves and then added in order. The rest - which kernel runs, how
// many tokens a tile takes - depends on the number of tokens too, and changes nothing.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// K is cut at multiples of this.
inline constexpr int64_t kProductChunk = 128;

struct ProductPlan {
  int segments = 1;
  // Narrow: a block takes 64 rows of the weight and up to 128 tokens, segments go to the blocks of
  // a cluster. Wide: two blocks take 128 rows each and share up to 256 tokens; a block goes through
  // the segments one after the other.
  bool wide = false;
  int token_tile = 8;
  int row_tiles = 0;  // of a group
  int token_tiles = 0;
};

constexpr int64_t parts_of(int64_t count, int64_t part) { return (count + part - 1) / part; }

// Where segment s of `segments` begins, in chunks.
constexpr int segment_begin(int chunks, int segments, int s) { return chunks * s / segments; }

// So many segments that a matrix of few rows keeps some 64 multiprocessors busy, eight at most (a
// cluster's size), none under five chunks: below, adding the parts costs what sharing saves.
constexpr int product_segments(int64_t groups, int64_t rows, int64_t columns) {
  const int64_t tiles = groups * parts_of(rows, 64), chunks = parts_of(columns, kProductChunk);
  int segments = 1;
  while (segments < 8 && tiles * segments * 2 <= 64 && chunks >= segments * 2 * 5) segments *= 2;
  return segments;
}

// `groups` matrices of rows x columns; tokens > 0.
constexpr ProductPlan product_plan(int64_t groups, int64_t rows, int64_t columns, int64_t tokens) {
  ProductPlan plan{.segments = product_segments(groups, rows, columns)};
  // The chips have 132 multiprocessors, or fewer.
  constexpr int64_t kMultiprocessors = 132, kFilled = 60;
  const int64_t wide_rows = 2 * parts_of(rows, 256), narrow_tiles = groups * parts_of(rows, 64);
  const auto waves = [&](int64_t tile) {
    return parts_of(groups * wide_rows * parts_of(tokens, tile), kMultiprocessors);
  };
  // Up to 128 tokens of a matrix whose narrow tiles fill the multiprocessors once or twice: half of
  // them would idle under tiles of 128 rows.
  const bool fits_once = plan.segments == 1 && tokens <= 128 &&
                         narrow_tiles > kMultiprocessors / 2 &&
                         narrow_tiles <= 2 * kMultiprocessors;
  // A wide tile reads each weight once for up to 256 tokens: worth it once such tiles fill half of
  // the multiprocessors. Its accumulators leave room for a second set, which segments need, only at
  // 128 tokens.
  if (tokens > 64 && !fits_once && groups * wide_rows * parts_of(tokens, 128) >= kFilled) {
    // A tile of 128 tokens takes 0.57 of the time of one of 256 (measured).
    const bool large = plan.segments == 1 && waves(256) * 100 <= waves(128) * 57;
    plan.wide = true;
    plan.token_tile = large ? 256 : 128;
    plan.row_tiles = static_cast<int>(wide_rows);
  } else {
    const int largest = fits_once ? 128 : 64;
    while (plan.token_tile < largest && plan.token_tile < tokens) plan.token_tile *= 2;
    plan.row_tiles = static_cast<int>(parts_of(rows, 64));
  }
  plan.token_tiles = static_cast<int>(parts_of(tokens, plan.token_tile));
  return plan;
}

}  // namespace cachalot::cuda
