// The warps that decode keys into stages, and what they compute when that is done. For .cu files.
#pragma once

#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_slots.h"

namespace cachalot::cuda::tiles {

// What a thread decodes of a stage: 32 channels of two keys, 8 slots apart, both of the window or
// both latents. A warp has 16 keys x 4 times 32 channels, in two panels: its 16-byte stores fall
// into all banks, its loads are whole sectors.
template <int kBlocks>
class StageParts {
 public:
  enum Kind { nothing, latents, window };
  struct Part {
    Kind kind;
    int slot, channel;
  };

  __device__ StageParts(const Slots& slots, int rank, int stages) : slots_(slots), stages_(stages) {
    const int warp = threadIdx.x / 32 - kConsumers / 32, lane = threadIdx.x % 32;
    const int panel = warp / 4 * 2 + lane / 16, key = warp % 4 * 16 + lane % 8;
    const int sub = lane / 8 % 2 * 32;
    score_stages_ = 2 * slots.share_tiles();
    slot_ = key;
    channel_ = panel * 64 + sub;
    // The panels of a stage of values: 4, 2 or 1 of each tile.
    constexpr int kTilePanels = kBlocks <= 2 ? 4 : 8 / kBlocks;
    value_slot_ = panel / kTilePanels * kTileKeys + key;
    value_channel_ =
        rank * (kBlocks == 1 ? 0 : kChannels / kBlocks) + panel % kTilePanels * 64 + sub;
    offset_ = panel * kPanelBytes + key * 128;
    first_chunk_ = sub / 8;
  }

  // Of chunk i, 0 .. 3, of the first key; the other key's is 8 rows further.
  __device__ int offset(int i) const {
    return offset_ + (((first_chunk_ + i) ^ threadIdx.x % 8) << 4);
  }

  __device__ Part find(int stage) const {
    if (stage < score_stages_) {
      const int slot = slots_.begin + stage / 2 * kTileKeys + slot_;
      return {kind(slot, slots_.end), slot, stage % 2 * 256 + channel_};
    }
    const int at = stage - score_stages_;
    const int end = stage < stages_ ? slots_.tiles * kTileKeys : 0;
    if constexpr (kBlocks == 1) {
      const int slot = at / 2 * kTileKeys + slot_;
      return {kind(slot, end), slot, at % 2 * 256 + channel_};
    } else {
      const int slot = at * (kBlocks / 2 * kTileKeys) + value_slot_;
      return {kind(slot, end), slot, value_channel_};
    }
  }

 private:
  __device__ Kind kind(int slot, int end) const {
    return slot >= end ? nothing : slot < slots_.window_end ? window : latents;
  }

  const Slots& slots_;
  int stages_, score_stages_, slot_, channel_, value_slot_, value_channel_, offset_, first_chunk_;
};

// Loads take longer than a stage, and registers are few: latents are loaded two stages ahead, each
// stage into its own half of the registers; a stage of the window needs both halves and is loaded
// when the one before it is decoded.
template <int kBlocks>
__device__ void decode_stages(Shared& shared, const Slots& slots, int rank, int stages) {
  using Parts = StageParts<kBlocks>;
  const Parts parts(slots, rank, stages);
  uint4 codes[2][2];  // [half][key]
  uint32_t scales[2][2];
  typename Parts::Kind kinds[2];
  const auto load = [&](const typename Parts::Part& part, int half) {
    kinds[half] = part.kind;
#pragma unroll
    for (int key = 0; key < 2; ++key) {
      if (part.kind == Parts::latents) {
        const uint8_t* row = shared.rows[part.slot + 8 * key];
        codes[half][key] = __ldg(reinterpret_cast<const uint4*>(row + part.channel / 2));
        scales[half][key] =
            __ldg(reinterpret_cast<const uint16_t*>(row + kChannels / 2 + part.channel / 16));
      } else if (part.kind == Parts::window) {
        const uint8_t* row = shared.rows[part.slot + 8 * key];
        codes[0][key] = __ldg(reinterpret_cast<const uint4*>(row + part.channel));
        codes[1][key] = __ldg(reinterpret_cast<const uint4*>(row + part.channel + 16));
        scales[half][key] = __ldg(row + kChannels + part.channel / 32);
      }
    }
  };
  // Into `half`, the stage after next; true if it could.
  const auto load_ahead = [&](int stage, int half) {
    const auto part = parts.find(stage);
    if (kinds[half ^ 1] == Parts::window || part.kind == Parts::window) return false;
    load(part, half);
    return true;
  };
  load(parts.find(0), 0);
  bool ahead = load_ahead(1, 1);
#pragma unroll 1
  for (int first = 0; first < stages; first += 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int stage = first + half, at = stage % kStages;
      if (stage >= stages) break;
      barrier_wait(&shared.empty[at], (stage / kStages & 1) ^ 1);
      uint8_t* panels = shared.stages[at];
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const auto store = [&](int i, uint4 eight_channels) {
          *reinterpret_cast<uint4*>(panels + parts.offset(i) + key * 8 * 128) = eight_channels;
        };
        if (kinds[half] == Parts::latents) {
          decode_latent(codes[half][key], scales[half][key], store);
        } else if (kinds[half] == Parts::window) {
          decode_window(codes[0][key], codes[1][key], scales[half][key], store);
        }
      }
      if (!ahead) load(parts.find(stage + 1), half ^ 1);
      ahead = load_ahead(stage + 2, half);
      // Without a fence, which would wait for the loads: the readers have it.
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(&shared.full[at]);
    }
  }
}

// Two warps: the denominators over 2^7. One warp: the turn back. Behind the last stage, beside the
// products.
__device__ inline void prepare_output(const AttentionParameters& of, Shared& shared,
                                      const Slots& slots, int64_t token) {
  const int thread = static_cast<int>(threadIdx.x) - kConsumers;
  if (thread < kHeads) {
    const float sink = of.sink[thread];
    barrier_wait_for_cluster(&shared.weights_there, 0);
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < slots.tiles * kTileGroups; ++i) sum += shared.sums[i][thread];
    sum += expf(sink - shared.largest[thread] * (of.scale * kPanelScaleInverse));
    shared.denominators[thread] = sum / kPanelScaleInverse;
  } else if (thread < kHeads + kPairs) {
    const int pair = thread - kHeads;
    shared.turns[pair] = turn_at(of.positions[token], of.frequencies[pair]);
  }
}

}  // namespace cachalot::cuda::tiles
