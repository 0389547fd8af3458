// sparse_attention in tiles: which shapes it takes, how many blocks share a token and how a token's
// keys are cut. None of it changes a bit of the result.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cachalot::cuda {

inline constexpr int kAttentionHeads = 64, kAttentionChannels = 512, kAttentionPairs = 32;
inline constexpr int kAttentionTileKeys = 64, kAttentionMostTiles = 10;
// Tiles of the window, where the kernel has code for its format.
inline constexpr int kAttentionMostWindowTiles = 3;
// As many as a cluster holds everywhere.
inline constexpr int kAttentionMostBlocks = 8;

// In tiles of 64, window and latents apart.
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

// A group of keys is what one warp multiplies at once: its exponentials are summed on their own,
// before the groups' sums are added in order. Window and latents each fill an even number.
inline constexpr int kAttentionGroupKeys = 16;
inline constexpr int kAttentionMostGroups =
    kAttentionMostTiles * kAttentionTileKeys / kAttentionGroupKeys;

constexpr int attention_groups(int keys) {
  return (keys + 2 * kAttentionGroupKeys - 1) / (2 * kAttentionGroupKeys) * 2;
}

// What a warpgroup multiplies at once with q, of one format: its four warps take a group each.
inline constexpr int kAttentionChunkGroups = 4;
constexpr int attention_score_chunks(int groups) {
  return (groups + kAttentionChunkGroups - 1) / kAttentionChunkGroups;
}

// Groups begin .. end - 1.
struct AttentionShare {
  int begin = 0, end = 0;
};
// The groups whose scores block `rank` of `blocks` computes, of `groups` with the window's before
// `window_end`: whole chunks, because one that is not full takes as long, the last blocks one more,
// because the first have the window, whose rows are longer. No more chunks than blocks: as many
// groups each.
constexpr AttentionShare attention_share(int window_end, int groups, int blocks, int rank) {
  if (blocks == 1) return {0, groups};
  const int window = attention_score_chunks(window_end);
  const int chunks = window + attention_score_chunks(groups - window_end);
  if (chunks <= blocks) {
    const int most = (groups + blocks - 1) / blocks;
    return {std::min(groups, rank * most), std::min(groups, (rank + 1) * most)};
  }
  const int each = chunks / blocks, with_more = chunks % blocks;
  const auto border = [&](int block) {
    const int chunk = block * each + std::max(0, block - (blocks - with_more));
    return chunk <= window
               ? std::min(window_end, chunk * kAttentionChunkGroups)
               : std::min(groups, window_end + (chunk - window) * kAttentionChunkGroups);
  };
  return {border(rank), border(rank + 1)};
}

// Up to so many groups of one format.
struct AttentionChunk {
  int first = 0, count = 0;
  bool window = false;
};
// A share cut into chunks of at most `window_size` groups of the window, which lies before group
// `window_end`, and `latent_size` of latents.
struct AttentionChunks {
  AttentionShare share;
  int window_end = 0, window_size = 1, latent_size = 1;

  constexpr int window_groups() const {
    return std::clamp(window_end - share.begin, 0, share.end - share.begin);
  }
  constexpr int window_chunks() const { return (window_groups() + window_size - 1) / window_size; }
  constexpr int count() const {
    const int latents = share.end - share.begin - window_groups();
    return window_chunks() + (latents + latent_size - 1) / latent_size;
  }
  // Empty behind the last.
  constexpr AttentionChunk at(int index) const {
    const int border = share.begin + window_groups(), latent = index - window_chunks();
    if (latent < 0) {
      const int first = share.begin + index * window_size;
      return {first, std::min(window_size, border - first), true};
    }
    const int first = std::min(share.end, border + latent * latent_size);
    return {first, std::min(latent_size, share.end - first), false};
  }
};

constexpr AttentionChunks attention_score_chunks(AttentionShare share, int window_end) {
  return {share, window_end, kAttentionChunkGroups, kAttentionChunkGroups};
}
// The most chunks a block has, and a warpgroup: every other one.
constexpr int attention_most_chunks(int blocks) {
  return (kAttentionMostTiles + blocks - 1) / blocks;
}
constexpr int attention_most_rounds(int blocks) { return (attention_most_chunks(blocks) + 1) / 2; }

// Packed rows as they lie in the caches, and how far apart a block that has whole rows in shared
// memory keeps them: so that eight lanes that read 16 bytes each of two neighbouring rows at once
// fall into all banks.
inline constexpr int kAttentionWindowRow = 528, kAttentionLatentRow = 288;
inline constexpr int kAttentionWindowPitch = 528, kAttentionLatentPitch = 320;
// The ring of packed values, and P behind it. Before there are values, both hold whole rows.
inline constexpr int kAttentionStages = 6, kAttentionStageBytes = 10240;
inline constexpr int kAttentionRingBytes = kAttentionStages * kAttentionStageBytes;
inline constexpr int kAttentionWeightBytes =
    kAttentionMostGroups * kAttentionGroupKeys * kAttentionHeads * 2;

// Where the whole rows of a block's chunks lie: at the end of ring and P, the first chunk in front.
// So stages of the ring are free from the first one on, as chunks are read.
struct AttentionRows {
  static constexpr int kTile = kAttentionTileKeys;
  int windows = 0, begin = 0;

  constexpr explicit AttentionRows(const AttentionChunks& chunks)
      : windows(chunks.window_chunks()) {
    const int latents = chunks.count() - windows;
    begin = kAttentionRingBytes + kAttentionWeightBytes -
            kTile * (windows * kAttentionWindowPitch + latents * kAttentionLatentPitch);
  }
  // Where chunk `index` begins, and the one before it ends.
  constexpr int at(int index) const {
    const int before = std::min(index, windows), latents = index - before;
    return begin + kTile * (before * kAttentionWindowPitch + latents * kAttentionLatentPitch);
  }
};

}  // namespace cachalot::cuda
