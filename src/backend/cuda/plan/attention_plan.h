// sparse_attention in tiles: which shapes it takes and how many blocks share a token. Neither
// changes a bit of the result.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cachalot::cuda {

inline constexpr int kAttentionHeads = 64, kAttentionChannels = 512, kAttentionPairs = 32;
inline constexpr int kAttentionTileKeys = 64, kAttentionMostTiles = 10;
// As many as a cluster holds everywhere.
inline constexpr int kAttentionMostBlocks = 8;

// Window and latents start a tile each, so that a tile has rows of one format.
constexpr int64_t attention_tiles(int64_t window_keys, int64_t latents) {
  const auto tiles = [](int64_t keys) {
    return (keys + kAttentionTileKeys - 1) / kAttentionTileKeys;
  };
  return tiles(window_keys) + tiles(latents);
}

// How many tokens run at once with 2, 4 and 8 blocks each: fewer than multiprocessors / blocks,
// because the blocks of a cluster lie in one part of the GPU.
struct AttentionRoom {
  int64_t of_two = 0, of_four = 0, of_eight = 0;
};

// The most blocks per token with which all tokens still run at once.
constexpr int attention_blocks_per_token(int64_t tokens, const AttentionRoom& room) {
  if (tokens <= room.of_eight) return 8;
  if (tokens <= room.of_four) return 4;
  return tokens <= room.of_two ? 2 : 1;
}

// Keys whose exponentials are summed on their own, before the groups' sums are added in order.
inline constexpr int kAttentionGroupKeys = 32;

// The groups of keys whose scores block `rank` of `blocks` computes: begin .. end - 1.
struct AttentionShare {
  int begin = 0, end = 0;
};
constexpr AttentionShare attention_share(int groups, int blocks, int rank) {
  const int each = (groups + blocks - 1) / blocks;
  return {std::min(groups, rank * each), std::min(groups, (rank + 1) * each)};
}

}  // namespace cachalot::cuda
