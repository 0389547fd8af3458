// How a product of BF16 inputs with a weight matrix is cut into work for the multiprocessors.
//
// What decides the bits of a result follows from the weight's shape alone: `segments`, the parts
// of K that are summed by themselves and then added in order. The rest - which kernel runs, how
// many tokens a tile takes - depends on the number of tokens too, and changes nothing.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace cachalot::cuda {

// K is cut at multiples of this.
inline constexpr int64_t kProductChunk = 128;

struct ProductPlan {
  int segments = 1;
  // Narrow: a block takes 64 rows of the weight and up to 64 tokens, segments go to the blocks of a
  // cluster. Wide: two blocks take 128 rows each and share up to 256 tokens; a block goes through
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
  // A wide tile reads each weight once for up to 256 tokens: worth it once such tiles fill half of
  // the multiprocessors. Its accumulators leave room for a second set, which segments need, only at
  // 128 tokens.
  constexpr int64_t kFilled = 60;
  const int64_t wide_rows = 2 * parts_of(rows, 256);
  for (const int tile : {256, 128}) {
    if (tile == 256 && plan.segments > 1) continue;
    if (tokens <= tile / 2 || groups * wide_rows * parts_of(tokens, tile) < kFilled) continue;
    plan.wide = true;
    plan.token_tile = tile;
    plan.row_tiles = static_cast<int>(wide_rows);
    plan.token_tiles = static_cast<int>(parts_of(tokens, tile));
    return plan;
  }
  while (plan.token_tile < 64 && plan.token_tile < tokens) plan.token_tile *= 2;
  plan.row_tiles = static_cast<int>(parts_of(rows, 64));
  plan.token_tiles = static_cast<int>(parts_of(tokens, plan.token_tile));
  return plan;
}

}  // namespace cachalot::cuda
