// What the multiplying warpgroups do with values: O^T = K^T . P^T with decoded keys from registers,
// and the output. For .cu files.
#pragma once

#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_scores.h"
#include "backend/cuda/sparse_attention_slots.h"

namespace cachalot::cuda::tiles {

// The neighbouring bytes of a lane's channels.
template <int kBytes>
__device__ inline uint2 load_bytes(const uint8_t* from) {
  if constexpr (kBytes == 8) return *reinterpret_cast<const uint2*>(from);
  if constexpr (kBytes == 4) return {*reinterpret_cast<const uint32_t*>(from), 0};
  if constexpr (kBytes == 2) return {*reinterpret_cast<const uint16_t*>(from), 0};
  return {*from, 0};
}

// P of other blocks, which comes in the blocks' order while the first is multiplied.
template <int kBlocks>
class AwaitedWeights {
 public:
  __device__ AwaitedWeights(Shared& shared, int groups, int rank)
      : shared_(shared), rank_(rank), each_(attention_share(groups, kBlocks, 0).end) {}

  __device__ void wait_for(int group) {
    if constexpr (kBlocks > 1) {
      while (group >= there_) {
        if (block_ != rank_) barrier_wait_for_cluster(&shared_.weights_from[block_], 0);
        ++block_;
        there_ += each_;
      }
    }
  }

 private:
  Shared& shared_;
  int rank_, each_, block_ = 0, there_ = 0;
};

// A thread's sums: of tile i, channels 2 i (rows) and 2 i + 1 (rows + 8) of its lane, and of heads
// 8 j + 2 quad + 0, 1.
template <int kBlocks>
class Products {
 public:
  using V = Values<kBlocks>;

  __device__ Products(Shared& shared, const Slots& slots, const Place& at, int rank)
      : shared_(shared), slots_(slots), at_(at), rank_(rank) {}

  // `read`: the ring's stages that are behind; counted on.
  __device__ __forceinline__ void multiply(int& read) {
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums_[tile][i] = 0;
    }
    const int window = uniform(slots_.window_groups()), groups = uniform(slots_.groups());
    AwaitedWeights<kBlocks> weights(shared_, groups, rank_);
    multiply_groups<true>(0, window, weights, read);
    if constexpr (kBlocks == 1) {
      multiply_ahead(window, groups, read);
    } else {
      multiply_groups<false>(window, groups, weights, read);
    }
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) wgmma_hold(sums_[tile]);
  }

  // The quotient, the turn back, a lane's channels of each of its heads at once.
  __device__ void write(const AttentionParameters& of, int64_t token) const {
    const int channel = rank_ * V::kBlockChannels + lane_channel();
    __nv_bfloat16* o = of.o + token * (kHeads * kChannels) + 2 * at_.quad * kChannels + channel;
    // Channels of a warp are all turned or all not.
    const int turned = channel - (kChannels - 2 * kPairs);
    if (uniform(turned - at_.row * V::kLaneChannels) < 0) {
      write_heads<false>(o, nullptr);
    } else {
      write_heads<true>(o, shared_.turns + turned / 2);
    }
  }

 private:
  // The lane's first channel among the block's.
  __device__ int lane_channel() const {
    return (at_.group * 4 + at_.warp) * V::kWarpChannels + at_.row * V::kLaneChannels;
  }

  // Latents' groups begin .. end - 1: one is decoded while the one before is multiplied.
  __device__ __forceinline__ void multiply_ahead(int begin, int end, int& read) {
    if (begin == end) return;
    uint32_t steps[2][V::kTiles][4];
    multiply_pair<true>(begin, read, steps);
#pragma unroll 1
    for (int group = begin + 2; group < end; group += 2) multiply_pair<false>(group, read, steps);
    wgmma_wait<0>();
  }

  template <bool first>
  __device__ __forceinline__ void multiply_pair(int group, int& read,
                                                uint32_t (&steps)[2][V::kTiles][4]) {
    const uint64_t operand = shared_descriptor(shared_.weights, SharedLayout::swizzle_128, 1024);
    const RingPlace stage(read);
    barrier_wait(&shared_.full[stage.stage], stage.parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!first) wgmma_wait<1>();
      decode_latents(shared_.ring[stage.stage], i, steps[i]);
      wgmma_fence();
#pragma unroll
      for (int tile = 0; tile < V::kTiles; ++tile) {
        wgmma_bf16<64, Contiguous::other>(sums_[tile], steps[i][tile],
                                          advance_descriptor(operand, (group + i) * kGroupBytes),
                                          true);
      }
      wgmma_commit();
    }
    release_stage(shared_, stage, 1);
    ++read;
  }

  // Groups begin .. end - 1, of one format. A few are decoded, then multiplied and waited for.
  template <bool window>
  __device__ __forceinline__ void multiply_groups(int begin, int end,
                                                  AwaitedWeights<kBlocks>& weights, int& read) {
    constexpr int kStageGroups = window ? V::kWindowGroups : V::kLatentGroups;
    constexpr int kBatch = kBlocks == 1 ? 2 : kBlocks;
    static_assert(kBatch % kStageGroups == 0);
    const uint64_t operand = shared_descriptor(shared_.weights, SharedLayout::swizzle_128, 1024);
    uint32_t steps[kBatch][V::kTiles][4];
#pragma unroll 1
    for (int first = begin; first < end; first += kBatch) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        // Groups come in pairs.
        if (i > 0 && i % 2 == 0 && first + i >= end) break;
        const RingPlace stage(read);
        if (i % kStageGroups == 0) barrier_wait(&shared_.full[stage.stage], stage.parity);
        if (window) {
          decode_window(shared_.ring[stage.stage], i % kStageGroups, steps[i]);
        } else {
          decode_latents(shared_.ring[stage.stage], i % kStageGroups, steps[i]);
        }
        if ((i + 1) % kStageGroups == 0 || first + i + 1 == end) {
          release_stage(shared_, stage, V::kWarpgroups == 1 ? 2 : 1);
          ++read;
        }
      }
      weights.wait_for(min(first + kBatch, end) - 1);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int group = first + i;
        if (i > 0 && i % 2 == 0 && group >= end) break;
        if (i % 2 == 0) wgmma_fence();
#pragma unroll
        for (int tile = 0; tile < V::kTiles; ++tile) {
          wgmma_bf16<64, Contiguous::other>(sums_[tile], steps[i][tile],
                                            advance_descriptor(operand, group * kGroupBytes), true);
        }
      }
      wgmma_commit();
      wgmma_wait<0>();
    }
  }

  // Keys 0, 1 of a lane are columns 2 quad + 0, 1 of the k-step, keys 2, 3 these + 8; four rows
  // apart in the stage.
  __device__ __forceinline__ void decode_latents(const uint8_t* stage, int within,
                                                 uint32_t (&steps)[V::kTiles][4]) const {
    constexpr int kBytes = V::kLaneChannels / 2;
    const uint8_t* row = stage + (within * kGroupKeys + at_.quad) * V::kLatentPitch;
    const uint8_t* codes = row + lane_channel() / 2;
    const uint8_t* scale = row + V::kLatentCodes +
                           (kBlocks == 1 ? 0 : rank_ * (32 / kBlocks) % 16) + lane_channel() / 16;
    uint32_t words[4], scales[4];
#pragma unroll
    for (int key = 0; key < 4; ++key) {
      words[key] = load_bytes<kBytes>(codes + key * 4 * V::kLatentPitch).x;
      scales[key] = scale[key * 4 * V::kLatentPitch];
    }
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      const uint32_t multiplier =
          latent_multiplier(scales[2 * two] + scales[2 * two + 1] * 0x10000u);
#pragma unroll
      for (int i = 0; i < kBytes; ++i) {
        const uint32_t codes_of_both = pick_bytes(words[2 * two], words[2 * two + 1], i);
        steps[i][2 * two] = decode_e2m1<0>(codes_of_both, multiplier);
        steps[i][2 * two + 1] = decode_e2m1<1>(codes_of_both, multiplier);
      }
    }
  }

  __device__ __forceinline__ void decode_window(const uint8_t* stage, int within,
                                                uint32_t (&steps)[V::kTiles][4]) const {
    constexpr int kBytes = V::kLaneChannels;
    const uint8_t* row = stage + (within * kGroupKeys + at_.quad) * V::kWindowPitch;
    const uint8_t* codes = row + lane_channel();
    const uint8_t* scale = row + V::kWindowCodes + rank_ * (16 / kBlocks) + lane_channel() / 32;
    uint2 words[4];
    uint32_t scales[4];
#pragma unroll
    for (int key = 0; key < 4; ++key) {
      words[key] = load_bytes<kBytes>(codes + key * 4 * V::kWindowPitch);
      scales[key] = scale[key * 4 * V::kWindowPitch];
    }
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      const uint32_t multiplier =
          window_multiplier(scales[2 * two] + scales[2 * two + 1] * 0x10000u);
#pragma unroll
      for (int i = 0; i < kBytes; ++i) {
        const uint2 a = words[2 * two], b = words[2 * two + 1];
        steps[i / 2][2 * two + i % 2] =
            decode_e4m3(pick_bytes(i < 4 ? a.x : a.y, i < 4 ? b.x : b.y, i % 4), multiplier);
      }
    }
  }

  template <bool turned>
  __device__ __forceinline__ void write_heads(__nv_bfloat16* o, const float2* turns) const {
    float2 of_tiles[V::kTiles];
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) {
      of_tiles[tile] = turned ? turns[tile] : make_float2(1, 0);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(&shared_.inverses[8 * j + 2 * at_.quad]);
#pragma unroll
      for (int head = 0; head < 2; ++head) {
        const float inverse = head == 0 ? two.x : two.y;
        __nv_bfloat162 out[V::kTiles];
#pragma unroll
        for (int tile = 0; tile < V::kTiles; ++tile) {
          const float* four = &sums_[tile][4 * j + head];
          out[tile] = __floats2bfloat162_rn(four[0] * inverse, four[2] * inverse);
          if (turned) {
            const float2 back = rotate_pair(__low2float(out[tile]), __high2float(out[tile]),
                                            of_tiles[tile].x, -of_tiles[tile].y);
            out[tile] = __floats2bfloat162_rn(back.x, back.y);
          }
        }
        store(o + (8 * j + head) * kChannels, out);
      }
    }
  }

  __device__ static void store(__nv_bfloat16* to, const __nv_bfloat162 (&out)[V::kTiles]) {
    // By the intrinsics: assignments became a store for each word.
    const auto* words = reinterpret_cast<const uint32_t*>(out);
    if constexpr (V::kTiles == 4) {
      __stcg(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
    } else if constexpr (V::kTiles == 2) {
      __stcg(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
    } else {
      __stcg(reinterpret_cast<uint32_t*>(to), words[0]);
    }
  }

  Shared& shared_;
  const Slots& slots_;
  const Place& at_;
  int rank_;
  float sums_[V::kTiles][32];
};

}  // namespace cachalot::cuda::tiles
