// A token's keys, packed for sparse_attention (plan/packed_keys.h) by blocks beside the product
// that makes its queries. For .cu files.
#pragma once

#include "backend/cuda/plan/packed_keys.h"
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_slots.h"
#include "backend/cuda/window_rows.cuh"

namespace cachalot::cuda {

// Two blocks have a chunk of the window each, the others a chunk or two of latents.
inline constexpr int kWindowPackers = PackedKeys::kWindowChunks, kLatentPackers = 5;
inline int packing_blocks(const AttentionParameters& of) {
  return kWindowPackers + (of.chosen_count > 0 ? kLatentPackers : 0);
}
// Rows in shared memory, so that the keys of a lane of four quads lie in different banks.
inline constexpr int kPackedWindowPitch = 528, kPackedLatentPitch = 304;
inline constexpr int kMostLatentChunks =
    (PackedKeys::kLatentChunks + kLatentPackers - 1) / kLatentPackers;
inline constexpr int kPackingBytes =
    std::max(PackedKeys::kChunkKeys * kPackedWindowPitch,
             kMostLatentChunks* PackedKeys::kChunkKeys* kPackedLatentPitch);

template <int kThreads>
class KeyPacker {
  using P = PackedKeys;
  static constexpr int kChannels = kAttentionChannels, kRowPieces = kChannels / 16 + 1;
  static constexpr int kLatentPieces = kChannels / 32 + 2;

 public:
  // memory: of the block, kPackingBytes.
  __device__ KeyPacker(const AttentionParameters& of, uint8_t* memory) : of_(of), memory_(memory) {}

  // The chunk that has this step's row, which is made first, or the other one.
  __device__ void pack_window(const WindowRows& rows, bool own) const {
    if (!of_.settled) wait_for_inputs();
    const WindowOfToken window = window_of(of_, token_of_step(of_, 0));
    const int last = window.count - 1, of_row = last / P::kChunkKeys;
    const int chunk = own ? of_row : 1 - of_row, first = chunk * P::kChunkKeys;
    const auto copy_key = [&](int key, int piece) {
      const bool there = first + key <= last;
      const uint8_t* from = window_key(of_, window, there ? first + key : 0);
      copy_16(memory_ + key * kPackedWindowPitch + piece * 16, from + piece * 16, there);
    };
    for (int i = thread(); i < P::kChunkKeys * kRowPieces; i += kThreads) {
      const int key = i / kRowPieces;
      if (first + key != last) copy_key(key, i % kRowPieces);
    }
    if (own) {
      make_window_row<kThreads>(rows, 0);
      __syncthreads();
      for (int i = thread(); i < kRowPieces; i += kThreads) copy_key(last - first, i);
    }
    commit_copies();
    wait_for_inputs();
    if (thread() == 0) counts()[chunk] = max(0, min(P::kChunkKeys, window.count - first));
    wait_copies<0>();
    __syncthreads();
    write_window_scores(chunk);
    write_window_values(chunk);
  }

  // Chunks `part` and what lies kLatentPackers behind.
  __device__ void pack_latents(int part) const {
    __shared__ const uint8_t* rows[kMostLatentChunks * P::kChunkKeys];
    const auto chunk_of = [&](int i) { return part + i * kLatentPackers; };
    if (!of_.settled) wait_for_inputs();
    const int key = thread();
    const int index = chunk_of(key / P::kChunkKeys) * P::kChunkKeys + key % P::kChunkKeys;
    const bool wanted = key < kMostLatentChunks * P::kChunkKeys && index < of_.chosen_count;
    const int32_t entry = wanted ? __ldcg(of_.chosen + index) : -1;
    if (key < kMostLatentChunks * P::kChunkKeys) {
      const int32_t page = max(0, entry) / of_.rows_per_page;
      rows[key] = entry < 0 ? nullptr
                            : latent_key(of_, page_of(of_, of_.slots[0], page),
                                         entry - page * of_.rows_per_page);
    }
    __syncthreads();
    const int chunks = chunk_of(1) < P::kLatentChunks ? 2 : 1;
    static_assert(kMostLatentChunks == 2);
    for (int i = thread(); i < chunks * P::kChunkKeys * kLatentPieces; i += kThreads) {
      const int at = i / kLatentPieces, piece = i % kLatentPieces;
      const uint8_t* from = rows[at];
      copy_16(memory_ + at * kPackedLatentPitch + piece * 16,
              from == nullptr ? of_.latents : from + piece * 16, from != nullptr);
    }
    commit_copies();
    wait_for_inputs();
#pragma unroll
    for (int i = 0; i < kMostLatentChunks; ++i) {
      const int count = __syncthreads_count(key / P::kChunkKeys == i && entry >= 0);
      if (key == 0 && chunk_of(i) < P::kLatentChunks)
        counts()[P::kWindowChunks + chunk_of(i)] = count;
    }
    wait_copies<0>();
    __syncthreads();
    for (int i = 0; i < chunks; ++i) {
      const uint8_t* from = memory_ + i * P::kChunkKeys * kPackedLatentPitch;
      write_latent_scores(chunk_of(i), from);
      write_latent_values(chunk_of(i), from);
    }
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ int32_t* counts() const {
    return reinterpret_cast<int32_t*>(of_.packed + P::kCountsAt);
  }
  __device__ void store(int at, uint4 value) const {
    *reinterpret_cast<uint4*>(of_.packed + at) = value;
  }
  __device__ static uint4 load(const uint8_t* from) {
    return *reinterpret_cast<const uint4*>(from);
  }

  // A stage's layout (sparse_attention_slots.h), a group at a time.
  __device__ void write_window_scores(int chunk) const {
    for (int i = thread(); i < P::kChunkKeys * kRowPieces; i += kThreads) {
      const int key = i / kRowPieces, piece = i % kRowPieces, row = key % kAttentionGroupKeys;
      const int group = chunk * P::kChunkGroups + key / kAttentionGroupKeys, eighth = piece % 8;
      const int to = piece == kRowPieces - 1 ? P::window_scales(group) + row * 16
                                             : P::window_codes(piece / 8, group) +
                                                   tiles::score_piece(row, eighth / 2, eighth % 2);
      store(to, load(memory_ + key * kPackedWindowPitch + piece * 16));
    }
  }
  __device__ void write_latent_scores(int chunk, const uint8_t* from) const {
    constexpr int kCodePieces = kChannels / 32;
    for (int i = thread(); i < P::kChunkKeys * kLatentPieces; i += kThreads) {
      const int key = i / kLatentPieces, piece = i % kLatentPieces, row = key % kAttentionGroupKeys;
      const int group = chunk * P::kChunkGroups + key / kAttentionGroupKeys, eighth = piece % 8;
      const int to = piece >= kCodePieces ? P::latent_scales(piece - kCodePieces, group) + row * 16
                                          : P::latent_codes(piece / 8, group) +
                                                tiles::score_piece(row, eighth % 4, eighth / 4);
      store(to, load(from + key * kPackedLatentPitch + piece * 16));
    }
  }

  // Of a lane's four keys of a group, columns 2 quad, 2 quad + 1 of a k-step and these + 8.
  __device__ static int key_of(int quad, int i) { return 2 * quad + i % 2 + i / 2 * 8; }

  __device__ void write_window_values(int chunk) const {
    const auto at = [&](int slice, int warp) {
      return P::values(slice, chunk) + warp * P::kWarpBytes;
    };
    for (int i = thread(); i < P::kSlices * P::kWarps * 2 * 32; i += kThreads) {
      const int lane = i % 32, two = i / 32 % 2, warp = i / 64 % P::kWarps, slice = i / 512;
      const uint8_t* from = memory_ + slice * 128 + warp * 16 + lane / 4 * 2;
      uint32_t words[4] = {};
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int key = (two * 2 + k / 4) * 16 + key_of(lane % 4, k % 4);
        words[k / 2] |=
            uint32_t{*reinterpret_cast<const uint16_t*>(from + key * kPackedWindowPitch)}
            << k % 2 * 16;
      }
      store(at(slice, warp) + (two * 32 + lane) * 16, {words[0], words[1], words[2], words[3]});
    }
    write_multipliers<kPackedWindowPitch, 32>(chunk, 0, memory_ + kChannels, window_multiplier);
  }

  __device__ void write_latent_values(int chunk, const uint8_t* memory) const {
    const auto at = [&](int slice, int warp) {
      return P::values(slice, P::kWindowStages + chunk / 2) + warp * P::kWarpBytes;
    };
    for (int i = thread(); i < P::kSlices * P::kWarps * 32; i += kThreads) {
      const int lane = i % 32, warp = i / 32 % P::kWarps, slice = i / 256;
      const uint8_t* from = memory + slice * 64 + warp * 8 + lane / 4;
      uint32_t words[4] = {};
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        // Both keys of a pair 16 bits apart.
        const int of_group = k % 4 / 2 + k % 2 * 2;
        const int key = k / 4 * 16 + key_of(lane % 4, of_group);
        words[k / 4] |= uint32_t{from[key * kPackedLatentPitch]} << k % 4 * 8;
      }
      store(at(slice, warp) + chunk % 2 * 512 + lane * 16,
            {words[0], words[1], words[2], words[3]});
    }
    write_multipliers<kPackedLatentPitch, 16>(P::kWindowStages + chunk / 2, chunk % 2,
                                              memory + kChannels / 2, latent_multiplier);
  }

  // Of a chunk, which is the half-th of a stage. `scales`: its first key's, one for
  // kChannelsOfScale channels; multiplier(those of two keys).
  template <int kPitch, int kChannelsOfScale, class Multiplier>
  __device__ void write_multipliers(int stage, int half, const uint8_t* scales,
                                    Multiplier multiplier) const {
    constexpr int kSliceChannels = kChannels / P::kSlices, kGroups = P::kChunkGroups;
    for (int i = thread(); i < P::kSlices * P::kWarps * 4 * kGroups; i += kThreads) {
      const int group = i % kGroups, quad = i / kGroups % 4;
      const int warp = i / (4 * kGroups) % P::kWarps, slice = i / (4 * kGroups * P::kWarps);
      const int channel = slice * kSliceChannels + warp * (kSliceChannels / P::kWarps);
      const uint8_t* from = scales + channel / kChannelsOfScale;
      const auto of_pair = [&](int pair) {
        const auto scale = [&](int which) {
          const int key = group * kAttentionGroupKeys + key_of(quad, 2 * pair + which);
          return uint32_t{from[key * kPitch]};
        };
        return multiplier(scale(0) | scale(1) << 16);
      };
      uint8_t* to = of_.packed + P::values(slice, stage) + warp * P::kWarpBytes + P::kWarpCodes;
      reinterpret_cast<uint2*>(to)[(half * 4 + quad) * kGroups + group] = {of_pair(0), of_pair(1)};
    }
  }

  const AttentionParameters& of_;
  uint8_t* memory_;
};

// By blocks `part` of packing_blocks(), of kThreads threads; the first makes the window row of the
// step's token too.
template <int kThreads>
__device__ void pack_keys(const AttentionParameters& of, const WindowRows& rows, int part,
                          uint8_t* memory) {
  static_assert(kThreads >= kMostLatentChunks * PackedKeys::kChunkKeys);
  const KeyPacker<kThreads> packer(of, memory);
  if (part < kWindowPackers) {
    packer.pack_window(rows, part == 0);
  } else {
    packer.pack_latents(part - kWindowPackers);
  }
}

}  // namespace cachalot::cuda
