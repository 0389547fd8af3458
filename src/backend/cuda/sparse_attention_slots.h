// The shared memory of the kernel in tiles, and the keys of a token in it. For .cu files.
#pragma once

#include "backend/cuda/plan/attention_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/sparse_attention_keys.h"

namespace cachalot::cuda::tiles {

inline constexpr int kHeads = kAttentionHeads, kChannels = kAttentionChannels;
inline constexpr int kPairs = kAttentionPairs, kTileKeys = kAttentionTileKeys;
inline constexpr int kMostTiles = kAttentionMostTiles, kGroupKeys = kAttentionGroupKeys;
inline constexpr int kTileGroups = kTileKeys / kGroupKeys;
inline constexpr int kConsumers = 256, kProducers = 256, kThreads = kConsumers + kProducers;
// A panel: 64 rows of 64 channels, 128-byte swizzle.
inline constexpr int kPanelBytes = kTileKeys * 128, kStagePanels = 4;
inline constexpr int kStageBytes = kStagePanels * kPanelBytes, kStages = 4;

struct Shared {
  // When all is multiplied: the sums of o in FP32, which go on into `operand`.
  alignas(1024) uint8_t stages[kStages][kStageBytes];
  // q as 8 panels; then P as a panel per tile.
  alignas(1024) uint8_t operand[kMostTiles * kPanelBytes];
  // Sums of a group's exponentials.
  alignas(16) float sums[kMostTiles * kTileGroups][kHeads];
  const uint8_t* rows[kMostTiles * kTileKeys];
  // Largest unscaled scores: of a warpgroup, of each block of the cluster, of all keys.
  float largest_of_group[2][kHeads];
  float largest_of_block[kAttentionMostBlocks][kHeads];
  float largest[kHeads];
  float denominators[kHeads];
  float2 turns[kPairs];
  Barrier full[kStages], empty[kStages];
  Barrier largest_there, weights_there;
};
static_assert(sizeof(Shared) <= 227 << 10);

// The value of lane 0, which all lanes hold. Tells the compiler that a branch on it does not
// diverge: products behind a branch that might would wait for each other.
__device__ inline int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// The keys of a token as slots: the window's tiles, then the latents'. Slots without a key have the
// row of another.
struct Slots {
  int window_end;            // slots below hold window keys
  int window_keys, latents;  // that are there
  int tiles;
  int begin, end;  // whose scores this block computes

  __device__ int share_tiles() const { return (end - begin + kTileKeys - 1) / kTileKeys; }
  // How many slots from `slot` on hold keys whose scores this block computes; right up to the next
  // multiple of 8.
  __device__ int keys_from(int slot) const {
    if (slot >= end) return 0;
    return slot < window_end ? window_keys - slot : window_end + latents - slot;
  }
  // Whether all slots of a tile hold keys whose scores this block computes.
  __device__ bool whole(int slot) const {
    const int last = slot + kTileKeys - 1;
    return last < end && last < window_end + latents &&
           (window_keys == window_end || slot >= window_end);
  }
};

// By all threads of the block; the rows are there after a __syncthreads().
__device__ inline Slots find_slots(const AttentionParameters& of, Shared& shared, int64_t token,
                                   int blocks, int rank) {
  // Loads first: the page of an entry is two loads away, the row of a window key as well.
  const int entries = (of.chosen_count + kTileKeys - 1) / kTileKeys * kTileKeys;
  const int32_t* chosen = of.chosen + token * of.chosen_count;
  const int thread = threadIdx.x;
  const int32_t first_entry = thread < of.chosen_count ? chosen[thread] : -1;
  const int32_t other = entries > 0 ? chosen[0] : -1;
  const WindowOfToken window = window_of(of, token);
  Slots out;
  out.window_keys = window.count;
  out.window_end = uniform((window.count + kTileKeys - 1) / kTileKeys * kTileKeys);
  if (thread < out.window_end) {
    shared.rows[thread] = window_key(of, window, min(thread, window.count - 1));
  }
  out.latents = 0;
#pragma unroll 1
  for (int i = thread; i - thread < entries; i += kThreads) {
    const int32_t entry =
        i == thread ? first_entry : (i < of.chosen_count ? chosen[i] : int32_t{-1});
    const int32_t there = entry >= 0 ? entry : other;
    if (i < entries && there >= 0) {
      shared.rows[out.window_end + i] = latent_key(of, window.slot, there);
    }
    out.latents += __syncthreads_count(entry >= 0);
  }
  out.tiles = uniform((out.window_end + out.latents + kTileKeys - 1) / kTileKeys);
  const AttentionShare share = attention_share(out.tiles * kTileGroups, blocks, rank);
  out.begin = uniform(share.begin * kGroupKeys);
  out.end = uniform(share.end * kGroupKeys);
  return out;
}

}  // namespace cachalot::cuda::tiles
