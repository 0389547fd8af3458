// What the multiplying warpgroups do with values: O^T = K^T . P^T with decoded keys from registers,
// and the output. For .cu files.
#pragma once

#include "backend/cuda/ptx/load_matrices.h"
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
  __device__ AwaitedWeights(Shared& shared, int window, int groups, int rank)
      : shared_(shared), window_(window), groups_(groups), rank_(rank) {}

  __device__ void wait_for(int group) {
    if constexpr (kBlocks > 1) {
      while (group >= there_) {
        if (block_ != rank_) barrier_wait_for_cluster(&shared_.weights_from[block_], 0);
        there_ = attention_share(window_, groups_, kBlocks, block_).end;
        ++block_;
      }
    }
  }

 private:
  Shared& shared_;
  int window_, groups_, rank_, block_ = 0, there_ = 0;
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
      for (int i = 0; i < V::kHeadsOfPart / 2; ++i) sums_[tile][i] = 0;
    }
    const int window = uniform(slots_.window_groups()), groups = uniform(slots_.groups());
    AwaitedWeights<kBlocks> weights(shared_, window, groups, rank_);
    if constexpr (kBlocks == 1) {
      multiply_window(window, weights, read);
      multiply_latents(window, groups, weights, read);
    } else if constexpr (kBlocks == 2) {
      multiply_window(window, weights, read);
      multiply_latent_stages(window, groups, weights, read);
    } else {
      multiply_in_batches(window, groups, weights, read);
    }
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) wgmma_hold(sums_[tile]);
  }

  // Of packed keys (plan/packed_keys.h): most are decoded while P comes, the last when the first
  // are multiplied.
  template <bool kLatents>
  __device__ __forceinline__ void multiply_packed() {
    using P = PackedKeys;
    static_assert(V::kTiles == 1 && V::kSlices == P::kSlices && P::kStages == kStages);
    // Groups multiplied at once; and how many times as many wait for P, in registers: with more the
    // compiler serializes all products (C7512).
    constexpr int kAtOnce = 8, kAhead = 3;
    constexpr int kBatches = 1 + (kLatents ? P::kLatentStages : 0);
    static_assert(P::kWindowGroups == kAtOnce && 2 * P::kChunkGroups == kAtOnce);
#pragma unroll
    for (int i = 0; i < V::kHeadsOfPart / 2; ++i) sums_[0][i] = 0;
    uint32_t steps[std::min(kAhead, kBatches)][kAtOnce][1][4];
    AwaitedWeights<kBlocks> weights(shared_, P::kWindowGroups, kBatches * kAtOnce, rank_);
    const auto multiply_batch = [&](int batch) {
      weights.wait_for((batch + 1) * kAtOnce - 1);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        multiply_group(batch * kAtOnce + i, steps[batch % kAhead][i]);
      }
      wgmma_commit();
    };
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      if (batch >= kAhead) {
        multiply_batch(batch - kAhead);
        wgmma_wait<0>();
      }
      decode_packed(batch, steps[batch % kAhead]);
    }
#pragma unroll
    for (int batch = std::max(0, kBatches - kAhead); batch < kBatches; ++batch) {
      multiply_batch(batch);
    }
    wgmma_wait<0>();
    wgmma_hold(sums_[0]);
  }

  // The quotient, the turn back, a lane's channels of each of its heads at once.
  __device__ void write(const AttentionParameters& of, int64_t token) const {
    const int channel = V::slice(rank_) * V::kBlockChannels + lane_channel();
    const int head = V::head_part(rank_) * V::kHeadsOfPart + 2 * at_.quad;
    __nv_bfloat16* o = of.o + (token * kHeads + head) * kChannels + channel;
    // Channels of a warp are all turned or all not.
    const int turned = channel - (kChannels - 2 * kPairs);
    if (uniform(turned - at_.row * V::kLaneChannels) < 0) {
      write_heads<false>(o, head, nullptr);
    } else {
      write_heads<true>(o, head, shared_.turns + turned / 2);
    }
  }

 private:
  // The lane's first channel among the block's.
  __device__ int lane_channel() const {
    return (at_.group * 4 + at_.warp) * V::kWarpChannels + at_.row * V::kLaneChannels;
  }

  // Two groups of the window, which come in pairs, are decoded, then multiplied.
  __device__ __forceinline__ void multiply_window(int groups, AwaitedWeights<kBlocks>& weights,
                                                  int& read) {
    uint32_t steps[2][V::kTiles][4];
#pragma unroll 1
    for (int group = 0; group < groups; group += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const RingPlace stage(read);
        if (i % V::kWindowGroups == 0) barrier_wait(&shared_.full[stage.stage], stage.parity);
        decode_window(shared_.ring[stage.stage], i % V::kWindowGroups, steps[i]);
        if ((i + 1) % V::kWindowGroups == 0) {
          release_stage(shared_, stage, 1);
          ++read;
        }
      }
      weights.wait_for(group + 1);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i) multiply_group(group + i, steps[i]);
      wgmma_commit();
      wgmma_wait<0>();
    }
  }

  // Latents' groups begin .. end - 1: one is decoded while the one before is multiplied.
  __device__ __forceinline__ void multiply_latents(int begin, int end,
                                                   AwaitedWeights<kBlocks>& weights, int& read) {
    if (begin == end) return;
    uint32_t steps[2][V::kTiles][4];
    multiply_pair<true>(begin, weights, read, steps);
#pragma unroll 1
    for (int group = begin + 2; group < end; group += 2) {
      multiply_pair<false>(group, weights, read, steps);
    }
    wgmma_wait<0>();
  }

  template <bool first>
  __device__ __forceinline__ void multiply_pair(int group, AwaitedWeights<kBlocks>& weights,
                                                int& read, uint32_t (&steps)[2][V::kTiles][4]) {
    const RingPlace stage(read);
    barrier_wait(&shared_.full[stage.stage], stage.parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!first) wgmma_wait<1>();
      decode_latents(shared_.ring[stage.stage], i, steps[i]);
      if (i == 0) weights.wait_for(group + 1);
      wgmma_fence();
      multiply_group(group + i, steps[i]);
      wgmma_commit();
    }
    release_stage(shared_, stage, 1);
    ++read;
  }

  // What a lane takes of a stage of four groups of latents: four channels of two keys a word, and
  // the multipliers of the keys.
  struct LatentStage {
    uint32_t words[V::kLatentGroups][2], multipliers[V::kLatentGroups][2];
  };
  // Four channels of the keys of a group are a matrix of 16-bit words, transposed what lanes take.
  // A lane makes the multipliers of two keys, of the warp's two scales, for all.
  __device__ __forceinline__ void load_latents(int& read, LatentStage& out) const {
    static_assert(V::kLatentGroups == 4 && V::kLaneChannels == 4 && V::kWarpChannels == 32);
    const RingPlace stage(read);
    barrier_wait(&shared_.full[stage.stage], stage.parity);
    const int warp = at_.group * 4 + at_.warp, lane = threadIdx.x % 32;
    const uint8_t* rows = shared_.ring[stage.stage];
    // A group's keys 0 .. 7 and 8 .. 15 as they lie in the stage.
    const int key = lane % 8, row = lane / 8 * 8 + key / 2 + key % 2 * 4;
    const uint32_t from = shared_address(rows) + row * V::kLatentPitch + warp * 16;
    uint32_t two_groups[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_matrices_transposed(two_groups, from + i * 32 * V::kLatentPitch);
#pragma unroll
      for (int k = 0; k < 4; ++k) out.words[i * 2 + k / 2][k % 2] = two_groups[k];
    }
    const uint8_t* scales =
        rows + (lane / 4 * 8 + lane % 4) * V::kLatentPitch + V::kLatentCodes + warp * 2;
    const uint32_t even = *reinterpret_cast<const uint16_t*>(scales);
    const uint32_t odd = *reinterpret_cast<const uint16_t*>(scales + 4 * V::kLatentPitch);
    // Where q was; the stage before has the other half.
    uint32_t* exchange =
        reinterpret_cast<uint32_t*>(shared_.query) + (warp * 2 + read % 2) * 2 * 32;
    reinterpret_cast<uint2*>(exchange)[lane] =
        make_uint2(latent_multiplier(__byte_perm(even, odd, 0x2420)),
                   latent_multiplier(__byte_perm(even, odd, 0x2521)));
    release_stage(shared_, stage, 1);
    ++read;
    const uint32_t* own = exchange + at_.quad * 2 + at_.row / 4;
#pragma unroll
    for (int group = 0; group < V::kLatentGroups; ++group) {
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        out.multipliers[group][two] = own[group * 16 + two * 8];
      }
    }
  }

  // Latents' groups begin .. end - 1, by stages, of which two groups are decoded while the two
  // before are multiplied. No product runs on across the end of the loop: the other warpgroup's do.
  __device__ __forceinline__ void multiply_latent_stages(int begin, int end,
                                                         AwaitedWeights<kBlocks>& weights,
                                                         int& read) {
    if (begin == end) return;
    LatentStage stage;
    load_latents(read, stage);
#pragma unroll 1
    for (int group = begin; group < end; group += V::kLatentGroups) {
      weights.wait_for(min(group + V::kLatentGroups, end) - 1);
      uint32_t steps[V::kLatentGroups][V::kTiles][4];
#pragma unroll
      for (int i = 0; i < V::kLatentGroups; ++i) {
        // Groups come in pairs.
        if (i == 2 && group + i >= end) break;
        decode_latents(stage.words[i], stage.multipliers[i], steps[i]);
        if (i % 2 == 0) continue;
        wgmma_fence();
        multiply_group(group + i - 1, steps[i - 1]);
        multiply_group(group + i, steps[i]);
        wgmma_commit();
      }
      if (group + V::kLatentGroups < end) load_latents(read, stage);
      wgmma_wait<0>();
    }
  }

  __device__ __forceinline__ static void decode_latents(const uint32_t (&words)[2],
                                                        const uint32_t (&multipliers)[2],
                                                        uint32_t (&steps)[V::kTiles][4]) {
#pragma unroll
    for (int two = 0; two < 2; ++two) {
#pragma unroll
      for (int tile = 0; tile < V::kTiles; ++tile) {
        const uint32_t codes = words[two] >> (8 * tile);
        steps[tile][2 * two] = decode_e2m1<0>(codes, multipliers[two]);
        steps[tile][2 * two + 1] = decode_e2m1<1>(codes, multipliers[two]);
      }
    }
  }

  // Several blocks: a few stages are decoded, as long as P is on its way, then multiplied.
  __device__ __forceinline__ void multiply_in_batches(int window, int groups,
                                                      AwaitedWeights<kBlocks>& weights, int& read) {
    constexpr int kBatch = kBlocks == 8 ? 2 : 1, kMost = V::kLatentGroups;
    static_assert(V::kWindowGroups <= kMost);
    uint32_t steps[kBatch][kMost][V::kTiles][4];
    int group = 0;
#pragma unroll 1
    while (group < groups) {
      int first = group, counts[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool of_window = group < window;
        counts[i] = of_window ? min(V::kWindowGroups, window - group) : min(kMost, groups - group);
        if (counts[i] == 0) continue;
        const RingPlace stage(read++);
        barrier_wait(&shared_.full[stage.stage], stage.parity);
        const uint8_t* from = shared_.ring[stage.stage];
        if (of_window) {
#pragma unroll
          for (int k = 0; k < V::kWindowGroups; ++k) decode_window(from, k, steps[i][k]);
        } else {
#pragma unroll
          for (int k = 0; k < kMost; ++k) decode_latents(from, k, steps[i][k]);
        }
        release_stage(shared_, stage, 1);
        group += counts[i];
      }
      weights.wait_for(group - 1);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int k = 0; k < kMost; ++k) {
          // Groups come in pairs.
          if (k % 2 == 0 && k >= counts[i]) break;
          multiply_group(first + k, steps[i][k]);
        }
        first += counts[i];
      }
      wgmma_commit();
      wgmma_wait<0>();
    }
  }

  __device__ __forceinline__ void multiply_group(int group, const uint32_t (&steps)[V::kTiles][4]) {
    const uint64_t operand = shared_descriptor(
        shared_.weights + V::head_part(rank_) * V::kPartBytes, V::kLayout, V::kEightRows);
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) {
      wgmma_bf16<V::kHeadsOfPart, Contiguous::other>(
          sums_[tile], steps[tile], advance_descriptor(operand, group * V::kGroupBytes), true);
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
                           (V::kSlices == 1 ? 0 : V::slice(rank_) * (32 / V::kSlices) % 16) +
                           lane_channel() / 16;
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
    const uint8_t* scale =
        row + V::kWindowCodes + V::slice(rank_) * (16 / V::kSlices) + lane_channel() / 32;
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

  // The window's groups, or a stage of latents.
  __device__ __forceinline__ void decode_packed(int batch, uint32_t (*steps)[1][4]) {
    using P = PackedKeys;
    const int warp = at_.group * 4 + at_.warp, lane = threadIdx.x % 32;
    const auto stage_at = [&](int stage) {
      barrier_wait(&shared_.full[stage], 0);
      return shared_.ring[stage] + warp * P::kWarpBytes;
    };
    const auto codes = [&](const uint8_t* from) {
      return reinterpret_cast<const uint4*>(from) + lane;
    };
    const auto multipliers = [&](const uint8_t* from) {
      return reinterpret_cast<const uint4*>(from + P::kWarpCodes) + at_.quad * 2;
    };
    if (batch == 0) {
#pragma unroll
      for (int i = 0; i < P::kWindowStages; ++i) {
        const uint8_t* from = stage_at(i);
        decode_packed_window(codes(from), multipliers(from), steps + i * P::kChunkGroups);
      }
    } else {
      const uint8_t* from = stage_at(P::kWindowStages + batch - 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        decode_packed_latents(codes(from) + i * 32, multipliers(from) + i * 8,
                              steps + i * P::kChunkGroups);
      }
    }
  }

  // Four groups, of a lane's pieces: two codes of a key are neighbours, keys of a pair 16 bits
  // apart.
  __device__ __forceinline__ static void decode_packed_window(const uint4* codes,
                                                              const uint4* multipliers,
                                                              uint32_t (*steps)[1][4]) {
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      const uint4 words = codes[two * 32], by = multipliers[two];
      const uint32_t of_words[4] = {words.x, words.y, words.z, words.w};
      const uint32_t of_pairs[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t* out = &steps[two * 2 + i / 2][0][i % 2 * 2];
        out[0] = decode_e4m3_of<0>(of_words[i], of_pairs[i]);
        out[1] = decode_e4m3_of<1>(of_words[i], of_pairs[i]);
      }
    }
  }
  // A word is a group: both codes of a key in a byte, keys of a pair 16 bits apart.
  __device__ __forceinline__ static void decode_packed_latents(const uint4* codes,
                                                               const uint4* multipliers,
                                                               uint32_t (*steps)[1][4]) {
    const uint4 words = *codes, low = multipliers[0], high = multipliers[1];
    const uint32_t of_groups[4] = {words.x, words.y, words.z, words.w};
    const uint32_t of_pairs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t two = pair == 0 ? of_groups[i] : of_groups[i] >> 8;
        steps[i][0][2 * pair] = decode_e2m1<0>(two, of_pairs[2 * i + pair]);
        steps[i][0][2 * pair + 1] = decode_e2m1<1>(two, of_pairs[2 * i + pair]);
      }
    }
  }

  template <bool turned>
  __device__ __forceinline__ void write_heads(__nv_bfloat16* o, int first,
                                              const float2* turns) const {
    float2 of_tiles[V::kTiles];
#pragma unroll
    for (int tile = 0; tile < V::kTiles; ++tile) {
      of_tiles[tile] = turned ? turns[tile] : make_float2(1, 0);
    }
#pragma unroll
    for (int j = 0; j < V::kHeadsOfPart / 8; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(&shared_.inverses[first + 8 * j]);
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
  float sums_[V::kTiles][V::kHeadsOfPart / 2];
};

}  // namespace cachalot::cuda::tiles
