// How a product with an FP8 weight is cut: a function of the weight's shape alone, so that every
// number of rows and every GPU adds in the same order.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// What one copy brings: 128 columns of some rows.
inline constexpr int kStepColumns = 128;
inline constexpr int kFewTileRows = 128;  // weight rows of a tile where x has few rows

inline constexpr int kMaxChunks = 16;

struct Fp8Cut {
  int steps = 0;   // of kStepColumns
  int chunks = 0;  // of whole steps, which are summed apart and then added in order

  constexpr int first_step(int chunk) const { return chunk * steps / chunks; }
};

// With few rows of x a chunk of a tile is one block's work, and the weight's bytes are what takes
// time: the number of chunks is the one that makes the busiest multiprocessor's steps fewest. It is
// counted for the 132 multiprocessors of an H100 or H200 in its SXM form.
constexpr Fp8Cut cut_fp8(int64_t rows, int64_t columns) {
  constexpr int64_t kMultiprocessors = 132;
  // A chunk's start and end cost about as much as a step, and its sums are written and read again:
  // with 8 rows of x 4 KB, half a step.
  constexpr int64_t kChunkCost = 1;
  const int64_t steps = columns / kStepColumns;
  const int64_t tiles = (rows + kFewTileRows - 1) / kFewTileRows;
  int64_t best = 1, least = INT64_MAX;
  for (int64_t chunks = 1; chunks <= kMaxChunks && chunks <= steps; ++chunks) {
    const int64_t rounds = (tiles * chunks + kMultiprocessors - 1) / kMultiprocessors;
    const int64_t cost = rounds * ((steps + chunks - 1) / chunks + kChunkCost);
    if (cost < least) {
      least = cost;
      best = chunks;
    }
  }
  return {.steps = static_cast<int>(steps), .chunks = static_cast<int>(best)};
}

}  // namespace cachalot::cuda
