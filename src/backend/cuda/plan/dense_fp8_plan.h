// How a product with an FP8 weight is cut: a function of the weight's shape alone, so that every
// number of rows and every GPU adds in the same order.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

// What one copy brings: 128 columns of some rows.
inline constexpr int kStepColumns = 128;
inline constexpr int kFewTileRows = 128;  // weight rows of a tile where x has few rows

inline constexpr int kMaxChunks = 8;  // the blocks of a cluster

struct Fp8Cut {
  int steps = 0;  // of kStepColumns
  // Of whole steps, which are summed apart and then added in order. A power of two: clusters of
  // other sizes leave many multiprocessors idle.
  int chunks = 0;

  constexpr int first_step(int chunk) const { return chunk * steps / chunks; }
  constexpr int most_steps() const { return (steps + chunks - 1) / chunks; }  // of a chunk
};

// With few rows of x a chunk of a tile is one block's work, and the weight's bytes are what takes
// time: enough blocks to ask for them at full speed, on an H100 or H200 with 132 multiprocessors.
constexpr Fp8Cut cut_fp8(int64_t rows, int64_t columns) {
  constexpr int64_t kBlocks = 120, kLeastSteps = 2;
  const int64_t steps = columns / kStepColumns;
  const int64_t tiles = (rows + kFewTileRows - 1) / kFewTileRows;
  int64_t chunks = 1;
  while (chunks < kMaxChunks && tiles * chunks < kBlocks && steps >= 2 * chunks * kLeastSteps) {
    chunks *= 2;
  }
  return {.steps = static_cast<int>(steps), .chunks = static_cast<int>(chunks)};
}

}  // namespace cachalot::cuda
