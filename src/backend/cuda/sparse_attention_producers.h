// The warpgroup that looks up keys, copies packed rows into the ring and brings q into the order of
// the products, and what it computes besides. For .cu files.
#pragma once

#include "backend/cuda/ptx/arrive_after_copies.h"
#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/ptx/prefetch.h"
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_slots.h"

namespace cachalot::cuda::tiles {

// 8 channels of q, of each of the four quads, for one head: how they are loaded and how they lie.
// A k-step of 16 takes two pairs of each quad's channels, 8 w + r and 8 w + r + 4, because two
// codes 16 bits apart come out of a word together: pair r of quad Q lies in k-step r / 2 of the two
// at columns 2 Q + 8 (r % 2) and the one after.
class QueryPart {
 public:
  static constexpr int kCount = kHeads * kChannels / 32;

  __device__ void load(const AttentionParameters& of, int64_t token, int index) {
    const auto* q = reinterpret_cast<const uint4*>(of.q) + token * (kHeads * kChannels / 8) +
                    head(index) * (kChannels / 8) + eighth(index) / 4 * 16 + eighth(index) % 4;
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) pieces_[quad] = __ldg(q + quad * 4);
  }
  __device__ void store(Shared& shared, int index) const {
    uint4 pairs[4];
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) pairs[quad] = interleaved(pieces_[quad]);
    uint8_t* row = shared.query + eighth(index) / 2 * kPanelBytes + head(index) * 128;
    const auto put = [&](int r, uint4 columns) {
      const int piece = eighth(index) % 2 * 4 + r;
      *reinterpret_cast<uint4*>(row + ((piece ^ head(index) % 8) << 4)) = columns;
    };
    put(0, {pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x});
    put(1, {pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y});
    put(2, {pairs[0].z, pairs[1].z, pairs[2].z, pairs[3].z});
    put(3, {pairs[0].w, pairs[1].w, pairs[2].w, pairs[3].w});
  }

 private:
  // A warp has 8 heads of 4 neighbouring parts.
  __device__ static int head(int index) { return index % 8 + index / 32 % 8 * 8; }
  __device__ static int eighth(int index) { return index / 8 % 4 + index / 256 * 4; }

  uint4 pieces_[4];
};

// By all producers: the keys of a token, into rows[place] and slots[place].
__device__ inline Slots find_slots(const AttentionParameters& of, Shared& shared, int64_t token,
                                   int place) {
  constexpr int kMost = kMostSlots / kProducers;
  const int thread = static_cast<int>(threadIdx.x) - kConsumers;
  // Loads first: the page of an entry is two loads away, the row of a window key as well.
  int32_t entries[kMost];
  const int32_t* chosen = of.chosen + token * of.chosen_count;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int at = i * kProducers + thread;
    entries[i] = at < of.chosen_count ? __ldg(chosen + at) : -1;
  }
  const int32_t other = of.chosen_count > 0 ? __ldg(chosen) : -1;
  const int slots_of_latents = attention_groups(of.chosen_count) * kGroupKeys;
  const WindowOfToken window = window_of(of, token);
  Slots out;
  out.window_keys = window.count;
  out.window_end = uniform(attention_groups(window.count) * kGroupKeys);
  // The warps meet before rows are written: a slower one may still copy those that lie there.
  producers_meet();
  const uint8_t** rows = shared.rows[place];
#pragma unroll 1
  for (int i = thread; i < out.window_end; i += kProducers) {
    rows[i] = window_key(of, window, min(i, window.count - 1));
  }
  int last = 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int at = i * kProducers + thread;
    if (entries[i] >= 0) last = at + 1;
    const int32_t there = entries[i] >= 0 ? entries[i] : other;
    if (there >= 0 && at < slots_of_latents) {
      rows[out.window_end + at] = latent_key(of, window.slot, there);
    }
  }
  last = __reduce_max_sync(~0u, last);
  if (thread % 32 == 0) shared.counts[thread / 32] = last;
  producers_meet();
  out.latents = 0;
  for (const int count : shared.counts) out.latents = max(out.latents, count);
  out.latents = uniform(out.latents);
  if (thread == 0) shared.slots[place] = out;
  // What follows may write counts again.
  producers_meet();
  return out;
}

// Each of the four warps fills every fourth stage.
template <int kBlocks>
class Producer {
 public:
  __device__ Producer(const AttentionParameters& of, Shared& shared, int rank)
      : of_(of),
        shared_(shared),
        rank_(rank),
        thread_(static_cast<int>(threadIdx.x) - kConsumers) {}

  // Tokens `token`, token + stride, ..
  __device__ void run(int64_t token, int64_t stride, int64_t tokens) {
    Slots slots = find_slots(of_, shared_, token, 0);
    barrier_arrive(&shared_.token_there);
    if constexpr (kBlocks > 1) cluster_wait();
#pragma unroll 1
    for (int turn = 0; token < tokens; ++turn, token += stride) {
      rows_ = shared_.rows[turn % 2];
      copy_scores(slots);
      const AttentionChunks chunks = V::chunks(slots);
      const int count = chunks.count();
      Slots next = slots;
      const bool more = token + stride < tokens;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        if (my_stage()) copy_values(chunks.at(i));
        ++copied_;
        if (!more) continue;
        // The next token's keys, while P of this is computed.
        if (i == min(1, count - 1)) {
          next = find_slots(of_, shared_, token + stride, (turn + 1) % 2);
          prefetch_query(token + stride);
        }
        // They are announced when this token's P is there: then all consumers have waited for this
        // token's, and the barrier is not two phases on while one of them still waits. Until then
        // the ring takes no more anyway.
        if (i == min(kStages, count) - 1) {
          barrier_wait(&shared_.weights_there, turn & 1);
          barrier_arrive(&shared_.token_there);
        }
      }
      prepare_output(token, turn, slots.groups());
      slots = next;
    }
  }

 private:
  using V = Values<kBlocks>;

  __device__ int lane() const { return thread_ % 32; }
  __device__ bool my_stage() const { return copied_ % 4 == uniform(thread_ / 32); }
  __device__ uint32_t begin_stage() {
    const RingPlace at(copied_);
    barrier_wait(&shared_.empty[at.stage], at.parity ^ 1);
    return shared_address(shared_.ring[at.stage]);
  }
  __device__ void end_stage() {
    arrive_after_copies(shared_address(&shared_.full[RingPlace(copied_).stage]));
  }

  __device__ void copy_scores(const Slots& slots) {
    const AttentionShare share = attention_share(slots.groups(), kBlocks, rank_);
    const AttentionChunks chunks = attention_score_chunks(share, slots.window_groups());
#pragma unroll 1
    for (int first = 0; first < chunks.count(); first += 2) {
      const AttentionChunk one = chunks.at(first), other = chunks.at(first + 1);
      const int parts = score_parts(one), others = score_parts(other);
#pragma unroll 1
      for (int part = 0; part < max(parts, others); ++part) {
#pragma unroll 1
        for (int group = 0; group < 2; ++group) {
          if (my_stage()) {
            if (part < (group == 0 ? parts : others)) {
              copy_part(group == 0 ? one : other, part);
            } else {
              begin_stage();
              end_stage();
            }
          }
          ++copied_;
        }
      }
    }
  }

  // Of up to 64 keys, part `part` of the codes, and their scales.
  __device__ void copy_part(const AttentionChunk& chunk, int part) {
    const uint32_t to = begin_stage();
    const uint8_t* const* rows = rows_ + chunk.first * kGroupKeys;
    const int row = lane() / 8, eighth = lane() % 8;
    const uint32_t first = to + (chunk.window ? score_piece(row, eighth / 2, eighth % 2)
                                              : score_piece(row, eighth % 4, eighth / 4));
    const int from = part * 128 + eighth * 16;
#pragma unroll 1
    for (int group = 0; group < chunk.count; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        copy_16_to(first + (group * 4 + i) * 4 * 128, rows[group * 16 + i * 4 + row] + from);
      }
    }
    const int scales = chunk.window ? kChannels : kChannels / 2 + part * 16;
#pragma unroll 1
    for (int key = lane(); key < chunk.count * kGroupKeys; key += 32) {
      copy_16_to(to + kScoreScales + key * 16, rows[key] + scales);
    }
    end_stage();
  }

  __device__ void copy_values(const AttentionChunk& chunk) {
    const uint32_t to = begin_stage();
    if (chunk.window) {
      // All scales of a row are one piece.
      copy_rows<V::kWindowCodes, 1, V::kWindowPitch>(to, chunk, kChannels);
    } else {
      constexpr int kPieces = kBlocks == 1 ? 2 : 1;
      copy_rows<V::kLatentCodes, kPieces, V::kLatentPitch>(
          to, chunk, kChannels / 2 + rank_ * (32 / kBlocks) / 16 * 16);
    }
    end_stage();
  }

  // The block's codes of a chunk's rows, and kScales pieces of 16 bytes from `scales` on.
  template <int kCodes, int kScales, int kPitch>
  __device__ void copy_rows(uint32_t to, const AttentionChunk& chunk, int scales) {
    const uint8_t* const* rows = rows_ + chunk.first * kGroupKeys;
    constexpr int kPieces = kCodes / 16, kKeys = 32 / kPieces;
    static_assert(kPieces <= 32 && kKeys <= kGroupKeys);
    const int key = lane() / kPieces, piece = lane() % kPieces * 16;
    const uint32_t first = to + place(key) * kPitch + piece;
    const int from = rank_ * kCodes + piece;
#pragma unroll 1
    for (int group = 0; group < chunk.count; ++group) {
#pragma unroll
      for (int i = 0; i < kGroupKeys; i += kKeys) {
        copy_16_to(first + (group * kGroupKeys + place(i)) * kPitch,
                   rows[group * kGroupKeys + i + key] + from);
      }
    }
#pragma unroll 1
    for (int i = lane(); i < chunk.count * kGroupKeys * kScales; i += 32) {
      const int scale = i % kScales * 16;
      copy_16_to(to + place(i / kScales) * kPitch + kCodes + scale,
                 rows[i / kScales] + scales + scale);
    }
  }
  // Where a key of a group lies: those a lane needs of a k-step - columns 2 quad, 2 quad + 1 and
  // these + 8 - four rows apart, so that quads read neighbouring rows. Bits change places, so that
  // of keys without a common bit the places add up.
  __device__ static constexpr int place(int key) {
    return key / 16 * 16 + key % 8 / 2 + key % 2 * 4 + key % 16 / 8 * 8;
  }

  __device__ void prefetch_query(int64_t token) const {
    constexpr int kTokenBytes = kHeads * kChannels * 2, kLine = 128;
    const auto* q = reinterpret_cast<const uint8_t*>(of_.q) + token * kTokenBytes;
#pragma unroll
    for (int i = 0; i < kTokenBytes / kLine; i += kProducers) {
      prefetch_line(q + (i + thread_) * kLine);
    }
  }

  // Two warps: the denominators over 2^7 and their inverses. One warp: the turn back.
  __device__ void prepare_output(int64_t token, int turn, int groups) {
    if (thread_ < kHeads) {
      const float sink = of_.sink[thread_];
      barrier_wait(&shared_.weights_there, turn & 1);
      if constexpr (kBlocks > 1) {
        for (int block = 0; block < kBlocks; ++block) {
          if (block != rank_) barrier_wait_for_cluster(&shared_.weights_from[block], 0);
        }
      }
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < groups; ++i) sum += shared_.sums[i][thread_];
      sum += expf(sink - shared_.largest[thread_] * (of_.scale * kPanelScaleInverse));
      sum /= kPanelScaleInverse;
      shared_.denominators[thread_] = {sum, __frcp_rn(sum)};
    } else if (thread_ < kHeads + kPairs) {
      const float2 turned = turn_at(of_.positions[token], of_.frequencies[thread_ - kHeads]);
      // The token before may still be turned back.
      barrier_wait(&shared_.weights_there, turn & 1);
      shared_.turns[thread_ - kHeads] = turned;
    }
    barrier_arrive(&shared_.output_ready);
  }

  const AttentionParameters& of_;
  Shared& shared_;
  const uint8_t* const* rows_ = nullptr;
  int rank_, thread_, copied_ = 0;
};

}  // namespace cachalot::cuda::tiles
