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

// With many rows of x a block's tile is 64 of them for each of 2 or 3 warpgroups, by 128 of the
// weight; the two blocks of a cluster have two tiles side by side. Three take 1.4 times as long as
// two, but 1.5 times where sums of chunks are kept, for which only two have registers enough. So it
// matters which fills the last round of clusters better. Neither changes a bit.
constexpr int many_fp8_groups(int64_t rows, int64_t weight_rows, bool chunks, int multiprocessors) {
  const int64_t pairs = (weight_rows + 255) / 256, clusters = multiprocessors / 2;
  const auto rounds = [&](int64_t tile) {
    return ((rows + tile - 1) / tile * pairs + clusters - 1) / clusters;
  };
  return rounds(192) * (chunks ? 15 : 14) < rounds(128) * 10 ? 3 : 2;
}

}  // namespace cachalot::cuda
