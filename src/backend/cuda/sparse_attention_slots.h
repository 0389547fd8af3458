// The shared memory of the kernel in tiles, and the keys of a token in it. For .cu files.
#pragma once

#include <cstddef>

#include "backend/cuda/plan/attention_plan.h"
#include "backend/cuda/plan/packed_keys.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/sparse_attention_keys.h"

namespace cachalot::cuda::tiles {

inline constexpr int kHeads = kAttentionHeads, kChannels = kAttentionChannels;
inline constexpr int kPairs = kAttentionPairs, kGroupKeys = kAttentionGroupKeys;
inline constexpr int kMostGroups = kAttentionMostGroups, kMostSlots = kMostGroups * kGroupKeys;
inline constexpr int kConsumers = 256, kProducers = 256, kThreads = kConsumers + kProducers;
inline constexpr int kConsumerWarps = kConsumers / 32;
// q as 8 panels of 64 heads x 64 channels, 128-byte swizzle.
inline constexpr int kPanelBytes = kHeads * 128, kPanels = kChannels / 64;
// Of the ring of packed rows.
inline constexpr int kStages = kAttentionStages, kStageBytes = kAttentionStageBytes;

// The keys of a token as slots: the window's, then the latents'. Each fills an even number of
// groups of 16; slots without a key have the row of another.
struct Slots {
  int window_end;            // slots below hold window keys
  int window_keys, latents;  // that are there
  int window_held = 0;       // slots below hold keys of the ring, the window's others this step's

  __device__ int window_groups() const { return window_end / kGroupKeys; }
  __device__ int groups() const { return window_groups() + attention_groups(latents); }
  // The first slot without a key behind those of `slot`'s format.
  __device__ int keys_end(int slot) const {
    return slot < window_end ? window_keys : window_end + latents;
  }
};

// Of packed keys all that there is room for, with keys or without.
__device__ inline Slots packed_slots(const AttentionParameters& of) {
  return {PackedKeys::kWindowKeys, PackedKeys::kWindowKeys,
          of.chosen_count > 0 ? PackedKeys::kLatents : 0};
}

// The group of keys whose scores a warp has of a round, and how many keys it has: a group of a pair
// may be without.
struct OwnGroup {
  static constexpr uint8_t kNone = 255;
  uint8_t group, keys;
};
struct alignas(16) OwnGroups {
  OwnGroup of_round[8];
};

// Packed parts of rows for scores: all of a block, where P will lie, so that the ring is for values
// from the first. The largest of all blocks' scores is known before there is P.
inline constexpr int kPackedParts = 2 * PackedKeys::kWindowParts;
static_assert(kPackedParts * kStageBytes <= kAttentionWeightBytes);

struct Shared {
  alignas(1024) uint8_t query[kPanels * kPanelBytes];
  // Several blocks: also the rows for scores (AttentionRows), from the ring on.
  alignas(1024) uint8_t ring[kStages][kStageBytes];
  alignas(1024) uint8_t weights[kAttentionWeightBytes];
  // Sums of a block's exponentials, in units of 2^-22: of whole numbers, so that their order does
  // not matter.
  alignas(16) uint32_t sums[kAttentionMostBlocks][kHeads];
  // Where a token's keys lie, of this and the next.
  const uint8_t* rows[2][kMostSlots];
  Slots slots[2];
  OwnGroups own_groups[2][kConsumerWarps];
  int counts[kProducers / 32];
  // Largest unscaled scores: of a warp, of each block of the cluster, of all keys.
  alignas(16) float largest_of_warp[kConsumerWarps][kHeads];
  alignas(16) float largest_of_block[kAttentionMostBlocks][kHeads];
  alignas(16) float largest[kHeads];
  // Of the denominators.
  alignas(16) float inverses[kHeads];
  float2 turns[kPairs];
  // Stages of the ring. Whole rows of each chunk, or packed parts of each warpgroup's. Where a
  // token's keys lie, and that all who copy know; that q is there, and in order; the blocks'
  // largest scores; this block's P; what output takes. P of other blocks.
  Barrier full[kStages], empty[kStages];
  Barrier rows_there[attention_most_chunks(2)], parts_there[kPackedParts];
  Barrier keys_there, keys_taken, query_there, token_there, largest_there, weights_there,
      output_ready;
  Barrier weights_from[kAttentionMostBlocks];
};
static_assert(sizeof(Shared) <= 227 << 10);
static_assert(offsetof(Shared, weights) == offsetof(Shared, ring) + kAttentionRingBytes);

// Named barriers.
inline constexpr int kConsumersMeet = 1, kFindersMeet = 2;
__device__ inline void consumers_meet() { sync_threads_of(kConsumersMeet, kConsumers); }

// The value of lane 0, which all lanes hold. Tells the compiler that a branch on it does not
// diverge: products behind a branch that might would wait for each other.
__device__ inline int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// A place in the ring, counted on through all tokens of a block.
struct RingPlace {
  int stage;
  uint32_t parity;

  __device__ explicit RingPlace(int count)
      : stage(count % kStages), parity(static_cast<uint32_t>(count / kStages) & 1) {}
};

// Whether a block that copies rows has whole ones of all its keys for scores, or parts of them in
// the ring. A block alone needs ring and P for the token before.
template <int kBlocks>
inline constexpr bool kWholeRows = kBlocks > 1;
// What a block multiplies with P: a slice of the channels, of which a warp has a strip and a lane a
// few neighbours, for all heads or, with eight blocks, for half of them: P comes from the other
// blocks slowly. And how many groups of keys, and in which rows, a stage of the ring holds of it.
template <int kBlocks>
struct Values {
  static constexpr int kHeadParts = kBlocks == 8 ? 2 : 1, kSlices = kBlocks / kHeadParts;
  __device__ static int slice(int rank) { return rank % kSlices; }
  __device__ static int head_part(int rank) { return rank / kSlices; }

  static constexpr int kBlockChannels = kChannels / kSlices;
  static constexpr int kWarpChannels = kBlockChannels / kConsumerWarps;
  static constexpr int kLaneChannels = kWarpChannels / 8;
  // Products: M = 64 channels, two of each lane.
  static constexpr int kTiles = kLaneChannels / 2;
  // Bytes of a row: codes, and the pieces of 16 bytes that hold their scales. The rows of four
  // quads of lanes lie in different banks.
  static constexpr int kLatentCodes = kBlockChannels / 2, kWindowCodes = kBlockChannels;
  static constexpr int kLatentPitch = kLatentCodes + (kSlices == 1 ? 32 : 16);
  static constexpr int kWindowPitch = kWindowCodes + (kSlices <= 2 ? 32 : 16);
  static constexpr int kLatentGroups = kSlices == 1 ? 2 : kSlices == 2 ? 4 : 8;
  static constexpr int kWindowGroups = kSlices;
  static_assert(kLatentGroups * kGroupKeys * kLatentPitch <= kStageBytes);
  static_assert(kWindowGroups * kGroupKeys * kWindowPitch <= kStageBytes);

  __device__ static AttentionChunks chunks(const Slots& slots) {
    return {{0, slots.groups()}, slots.window_groups(), kWindowGroups, kLatentGroups};
  }

  // P: of each part of the heads the groups' keys as rows, whose swizzle is as wide as they are.
  static constexpr int kHeadsOfPart = kHeads / kHeadParts;
  static constexpr int kGroupBytes = kGroupKeys * kHeadsOfPart * 2;
  static constexpr int kPartBytes = kMostGroups * kGroupBytes;
  static constexpr SharedLayout kLayout =
      kHeadParts == 1 ? SharedLayout::swizzle_128 : SharedLayout::swizzle_64;
  // Where key `row` of a group's first eight has the eight heads from 8 j on; and how far behind it
  // that of the others.
  static constexpr int kEightRows = 8 * kHeadsOfPart * 2;
  __device__ static int weights_at(int group, int row, int j) {
    constexpr int kPieces = kHeadsOfPart / 8;
    const int swizzle = kHeadParts == 1 ? row : row / 2;
    return j / kPieces * kPartBytes + group * kGroupBytes + row * kHeadsOfPart * 2 +
           ((j % kPieces ^ swizzle) << 4);
  }
};

// Scores from the ring: a stage holds, of each of up to 64 keys, 128 bytes of codes - half a
// latent, a quarter of a window row - and then the scales. Lane `quad` of four multiplies channels
// 128 j + 32 quad .. + 31, j = 0 .. 3; a part is two j of a latent, one of a window row.
inline constexpr int kLatentParts = 2, kWindowParts = 4;
inline constexpr int kScoreScales = 64 * 128;
static_assert(kWindowParts == PackedKeys::kWindowParts && kLatentParts == PackedKeys::kLatentParts);
__device__ inline int score_parts(const AttentionChunk& chunk) {
  return chunk.count == 0 ? 0 : chunk.window ? kWindowParts : kLatentParts;
}
// Where among the packed parts a warpgroup finds one.
__device__ inline int packed_part(int group, int part) { return group * kWindowParts + part; }
// Where `piece` of 16 bytes (0, 1) of a quad's codes lies in a row: neighbouring rows differ, so
// that the eight lanes that read at once fall into all banks.
__device__ inline int score_piece(int row, int quad, int piece) {
  return row * 128 + ((piece ^ (row & 1)) << 6) + quad * 16;
}

// Where a lane finds what it multiplies of two keys, `row` of its chunk and the eighth behind: of
// 128 channels the codes, 16 bytes of a latent or twice as many of a window row, and the scales.
struct PartOfRows {  // a stage, and which 128 channels of it
  const uint8_t* stage;
  int row, quad, part;

  static constexpr int kEightCodes = 8 * 128, kEightScales = 8 * 16;
  __device__ const uint8_t* latent() const { return stage + score_piece(row, quad, part % 2); }
  __device__ const uint8_t* latent_scales() const {
    return stage + kScoreScales + row * 16 + part % 2 * 8 + quad * 2;
  }
  __device__ const uint8_t* window(int piece) const {
    return stage + score_piece(row, quad, piece);
  }
  __device__ const uint8_t* window_scales() const {
    return stage + kScoreScales + row * 16 + part * 4 + quad;
  }
};
template <int kPitch>
struct WholeRows {
  const uint8_t* rows;
  int row, quad, part;

  static constexpr int kEightCodes = 8 * kPitch, kEightScales = 8 * kPitch;
  __device__ const uint8_t* latent() const { return rows + row * kPitch + part * 64 + quad * 16; }
  __device__ const uint8_t* latent_scales() const {
    return rows + row * kPitch + kChannels / 2 + part * 8 + quad * 2;
  }
  __device__ const uint8_t* window(int piece) const {
    return rows + row * kPitch + part * 128 + quad * 32 + piece * 16;
  }
  __device__ const uint8_t* window_scales() const {
    return rows + row * kPitch + kChannels + part * 4 + quad;
  }
};

}  // namespace cachalot::cuda::tiles
