// The warps that look up keys, copy packed rows into the ring and bring q into the order of the
// products, and what they compute besides. For .cu files.
#pragma once

#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/arrive_after_copies.h"
#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_slots.h"

namespace cachalot::cuda::tiles {

// By all consumers: q of a token, or as it lies in shared memory, into the order of products. A
// k-step of 16 takes two pairs of each quad's channels, 8 w + r and 8 w + r + 4, because two codes
// 16 bits apart come out of a word together: pair r of quad Q lies in k-step r / 2 of the two at
// columns 2 Q + 8 (r % 2) and the one after. A thread has an eighth of a quad's 64 channels at a
// time, of every fourth head; a warp the eighths of a panel.
__device__ __forceinline__ void order_query(const AttentionParameters& of, Shared& shared,
                                            int64_t token) {
  static_assert(kConsumerWarps == kPanels && kConsumers == 4 * 2 * 4 * kPanels);
  constexpr int kTurns = kHeads / 4, kHeadPieces = kChannels / 8;
  const int thread = threadIdx.x;
  const int quad = thread % 4, eighth = thread / 4 % 2, head = thread / 8 % 4, panel = thread / 32;
  const int first = head * kHeadPieces + panel / 2 * 16 + quad * 4 + panel % 2 * 2 + eighth;
  const auto* from = reinterpret_cast<const uint4*>(of.q) + token * (kHeads * kHeadPieces) + first;
  uint4 pieces[kTurns];
#pragma unroll
  for (int k = 0; k < kTurns; ++k) pieces[k] = __ldg(from + k * 4 * kHeadPieces);
  const uint32_t to = shared_address(shared.query) + panel * kPanelBytes + head * 128 + quad * 4;
  uint32_t places[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) places[r] = to + (((eighth * 4 + r) ^ head) << 4);
#pragma unroll
  for (int k = 0; k < kTurns; ++k) {
    const uint4 pairs = interleaved(pieces[k]);
    const uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
    // Of the swizzle, bit 2 of the head.
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      store_shared((places[r] ^ k % 2 * 64) + k * 4 * 128, words[r]);
    }
  }
  fence_shared_for_async();
  consumers_meet();
}

// By kHelpers threads, `thread` of them: the same for q that lies in panels already, as the copy
// engine swizzles it. What moves stays within 128 channels of a head, which are 16 pieces of 16
// bytes in two panels: a warp has four heads at a time.
template <int kHelpers>
__device__ void order_brought_query(Shared& shared, int thread) {
  constexpr int kPieces = kHeads / 4 * (kPanels / 2), kWarps = kHelpers / 32;
  const int quad = thread % 4, eighth = thread / 4 % 2, head = thread / 8 % 4;
#pragma unroll 1
  for (int i = thread / 32; i < kPieces; i += kWarps) {
    const int swizzle = head | (i & 1) << 2;
    const uint32_t row =
        shared_address(shared.query) + i / 16 * 2 * kPanelBytes + (i % 16 * 4 + head) * 128;
    const uint32_t from = row + quad / 2 * kPanelBytes;
    const int piece = quad % 2 * 4 + eighth;
    const uint4 first = load_shared_4(from + ((piece ^ swizzle) << 4));
    const uint4 second = load_shared_4(from + (((piece + 2) ^ swizzle) << 4));
    __syncwarp();
    const auto store = [&](uint32_t to, uint4 pairs) {
      const uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        store_shared(to + (((eighth * 4 + r) ^ swizzle) << 4) + quad * 4, words[r]);
      }
    };
    store(row, interleaved(first));
    store(row + kPanelBytes, interleaved(second));
  }
}

// By one thread: q of a token, in panels, announced at query_there.
__device__ inline void bring_query(const CUtensorMap& queries, Shared& shared, int token) {
  barrier_expect(&shared.query_there, kPanels * kPanelBytes);
#pragma unroll 1
  for (int panel = 0; panel < kPanels; ++panel) {
    copy_box(shared.query + panel * kPanelBytes, queries, panel * 64, token * kHeads,
             &shared.query_there);
  }
}

// By all consumers: the first q of the block. A warp starts one copy after the other, so each has a
// panel.
__device__ inline void bring_first_query(const CUtensorMap& queries, Shared& shared, int token) {
  static_assert(kPanels == kConsumerWarps);
  if (threadIdx.x == 0) barrier_expect(&shared.query_there, kPanels * kPanelBytes);
  if (threadIdx.x % 32 == 0) {
    const int panel = threadIdx.x / 32;
    copy_box(shared.query + panel * kPanelBytes, queries, panel * 64, token * kHeads,
             &shared.query_there);
  }
  barrier_wait(&shared.query_there, 0);
  order_brought_query<kConsumers>(shared, threadIdx.x);
  fence_shared_for_async();
  consumers_meet();
}

// By all consumers: q that is packed, waited for at query_there.
__device__ inline void bring_packed_query(const AttentionParameters& of, Shared& shared) {
  static_assert(kPanels == PackedKeys::kPanels && kPanelBytes == PackedKeys::kPanelBytes);
  static_assert(kPanels == kConsumerWarps);
  if (threadIdx.x == 0) barrier_expect(&shared.query_there, kPanels * kPanelBytes);
  wait_for_inputs();
  let_next_start();
  // A warp starts one copy after the other.
  if (threadIdx.x % 32 == 0) {
    const int panel = threadIdx.x / 32;
    copy_bulk(shared.query + panel * kPanelBytes,
              of.packed + PackedKeys::kQueryAt + panel * kPanelBytes, kPanelBytes,
              &shared.query_there);
  }
}

// By kFinders threads, `thread` of them: the keys of a token, into rows[place]. They do something
// else together before they look up the next.
template <int kFinders>
__device__ Slots find_slots(const AttentionParameters& of, Shared& shared, int64_t token, int place,
                            int thread) {
  // Of a thread at once. Loads first: a page is two loads away, the row of a window key as well.
  constexpr int kMost = std::min(4, (kMostSlots + kFinders - 1) / kFinders);
  constexpr bool kAllAtOnce = kMost * kFinders >= kMostSlots;
  const auto meet = [] { sync_threads_of(kFindersMeet, kFinders); };
  int32_t pages[kMost], within[kMost];
  int last = 0;
  TokenOfStep of_step = token_of_step(of, token);
  // The compiler does not move these loads to where they are used.
  renew(of_step.position);
  renew(of_step.slot);
  renew(of_step.first_row);
  const int32_t* chosen = of.chosen + token * of.chosen_count;
  const int slots_of_latents = attention_groups(of.chosen_count) * kGroupKeys;
  // Slots without a key have the first one's row; without branches, or loads would wait for each
  // other.
  const auto load_pages = [&](int first) {
    const int32_t other = max(0, __ldg(chosen));
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int at = first + i * kFinders + thread;
      within[i] = __ldg(chosen + min(at, of.chosen_count - 1));
      if (at >= of.chosen_count) within[i] = -1;
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (within[i] >= 0) last = first + i * kFinders + thread + 1;
      within[i] = within[i] >= 0 ? within[i] : other;
    }
    if (of.page_shift >= 0) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) pages[i] = within[i] >> of.page_shift;
    } else {
#pragma unroll
      for (int i = 0; i < kMost; ++i) pages[i] = within[i] / of.rows_per_page;
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      within[i] -= pages[i] * of.rows_per_page;
      pages[i] = page_of(of, of_step.slot, pages[i]);
    }
  };
  if (kAllAtOnce && slots_of_latents > 0) load_pages(0);
  const WindowOfToken window = window_of(of, of_step);
  Slots out;
  out.window_keys = window.count;
  out.window_end = uniform(attention_groups(window.count) * kGroupKeys);
  if constexpr (kAllAtOnce) {
    out.window_held = uniform(max(0, min(window.count, window.start - window.first)));
  }
  const uint8_t** rows = shared.rows[place];
#pragma unroll 1
  for (int i = thread; i < out.window_end; i += kFinders) {
    rows[i] = window_key(of, window, min(i, window.count - 1));
  }
#pragma unroll 1
  for (int first = 0; first < slots_of_latents; first += kMost * kFinders) {
    if constexpr (!kAllAtOnce) load_pages(first);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int at = first + i * kFinders + thread;
      if (at < slots_of_latents) rows[out.window_end + at] = latent_key(of, pages[i], within[i]);
    }
  }
  last = __reduce_max_sync(~0u, last);
  if (thread % 32 == 0) shared.counts[thread / 32] = last;
  meet();
  out.latents = 0;
#pragma unroll
  for (int i = 0; i < kFinders / 32; ++i) out.latents = max(out.latents, shared.counts[i]);
  out.latents = uniform(out.latents);
  return out;
}

// Warps that copy fill a stage of the ring each, always the same. Two others help: they prepare the
// output, and the next token where a block goes on with others.
template <int kBlocks>
class Producer {
 public:
  static constexpr int kHelpers = 64, kFirstHelper = kProducers - kHelpers;
  static constexpr int kCopiers = kFirstHelper / 32;
  static_assert(kCopiers == kStages);

  __device__ Producer(const AttentionParameters& of, const CUtensorMap& queries, Shared& shared,
                      int rank)
      : of_(of),
        queries_(queries),
        shared_(shared),
        rank_(rank),
        thread_(static_cast<int>(threadIdx.x) - kConsumers) {}

  // Of one token, whose keys are packed: they are copied at once, none is looked up.
  __device__ void run_with_packed() {
    if (uniform(thread_ / 32) < kCopiers) {
      copy_packed();
      __syncwarp();
      cluster_wait();
    } else {
      wait_for_inputs();
      const int helper = thread_ - kFirstHelper;
      const auto* counts = reinterpret_cast<const int32_t*>(of_.packed + PackedKeys::kCountsAt);
      announce(packed_slots(of_), 0, helper, [&](int group) {
        constexpr int kGroups = PackedKeys::kChunkGroups;
        return __ldcg(counts + group / kGroups) - group % kGroups * kGroupKeys;
      });
      barrier_arrive(&shared_.token_there);
      cluster_wait();
      prepare_output(helper, 0);
    }
  }

  __device__ void run(int tokens) {
    const bool copies = uniform(thread_ / 32) < kCopiers;
    // The first keys are waited for: all look them up. Settled ones before the kernel's inputs are
    // there: what wrote them stands in front of another attention, which let the next kernel start
    // behind its own wait, so it was complete when this kernel started (HeldOperation::settled);
    // positions, slots and tables come before the step's first kernel. Rows of this step are made
    // by the kernel in front.
    if (!kWholeRows<kBlocks> || !of_.settled) wait_for_inputs();
    const Slots slots = find_slots<kProducers>(of_, shared_, token_of(0), 0, thread_);
    if (!copies) {
      announce(slots, 0, thread_ - kFirstHelper, keys_from(slots));
      if constexpr (kBlocks == 1) barrier_arrive(&shared_.keys_there);
      barrier_arrive(&shared_.token_there);
    }
    if constexpr (kBlocks == 1) {
      if (copies) {
        copy_tokens(tokens);
      } else {
        help_with_tokens(tokens);
      }
    } else {
      rows_ = shared_.rows[0];
      if (!copies) wait_for_inputs();
      copy_whole_rows(slots, !copies);
      wait_for_inputs();
      cluster_wait();
      if (copies) {
        copy_all_values(slots);
      } else {
        prepare_output(thread_ - kFirstHelper, 0);
      }
    }
  }

 private:
  using V = Values<kBlocks>;

  // The block's turn-th token.
  __device__ static int token_of(int turn) {
    return static_cast<int>(blockIdx.x) / kBlocks + turn * (static_cast<int>(gridDim.x) / kBlocks);
  }

  __device__ void copy_tokens(int tokens) {
#pragma unroll 1
    for (int turn = 0; token_of(turn) < tokens; ++turn) {
      barrier_wait(&shared_.keys_there, turn & 1);
      const Slots slots = shared_.slots[turn % 2];
      barrier_arrive(&shared_.keys_taken);
      copy(slots, turn);
    }
  }

  // The next token's keys when those of the token before this are copied, and its q when P of this
  // one is there. What is announced then has been waited for before by all: no barrier is two
  // phases on while a thread still waits for it.
  __device__ void help_with_tokens(int tokens) {
#pragma unroll 1
    for (int turn = 0; token_of(turn) < tokens; ++turn) {
      // Addresses are computed anew: these threads have few registers.
      int helper = thread_ - kFirstHelper;
      renew(helper);
      const bool last = token_of(turn + 1) >= tokens;
      if (!last) {
        barrier_wait(&shared_.keys_taken, turn & 1);
        const int place = (turn + 1) % 2;
        const Slots slots = find_slots<kHelpers>(of_, shared_, token_of(turn + 1), place, helper);
        announce(slots, place, helper, keys_from(slots));
        barrier_arrive(&shared_.keys_there);
        // When nothing is multiplied with this one's.
        if (helper == 0) {
          barrier_wait(&shared_.weights_there, turn & 1);
          bring_query(queries_, shared_, token_of(turn + 1));
        }
      }
      prepare_output(helper, turn);
      if (!last) {
        barrier_wait(&shared_.query_there, turn & 1);
        order_brought_query<kHelpers>(shared_, helper);
        fence_shared_for_async();
        barrier_arrive(&shared_.token_there);
      }
    }
  }

  // How many keys there are from a group of slots on, of its format.
  __device__ static auto keys_from(const Slots& slots) {
    return [&slots](int group) {
      const int slot = group * kGroupKeys;
      return slots.keys_end(slot) - slot;
    };
  }

  // By the helpers: a token's slots, and which warp has the scores of which of them.
  template <class Keys>
  __device__ void announce(const Slots& slots, int place, int helper, Keys keys_from) {
    if (helper == 0) shared_.slots[place] = slots;
    constexpr int kRounds = attention_most_rounds(kBlocks);
    static_assert(kConsumerWarps * kRounds <= kHelpers && kRounds <= 8);
    if (helper >= kConsumerWarps * kRounds) return;
    const int warp = helper % kConsumerWarps, round = helper / kConsumerWarps;
    const AttentionChunk chunk =
        attention_score_chunks(own_share(slots), slots.window_groups()).at(2 * round + warp / 4);
    const int group = chunk.first + warp % 4;
    OwnGroup& own = shared_.own_groups[place][warp].of_round[round];
    own = {OwnGroup::kNone, 0};
    if (warp % 4 < chunk.count) {
      own = {static_cast<uint8_t>(group),
             static_cast<uint8_t>(max(0, min(kGroupKeys, keys_from(group))))};
    }
  }

  __device__ AttentionShare own_share(const Slots& slots) const {
    return attention_share(slots.window_groups(), slots.groups(), kBlocks, rank_);
  }

  // Packed keys for both products, all at once: a lane of each warp starts every sixth copy. What
  // is first is known before it is there.
  __device__ void copy_packed() {
    using P = PackedKeys;
    const Slots slots = packed_slots(of_);
    const AttentionChunks chunks = attention_score_chunks(own_share(slots), slots.window_groups());
    const int warp = uniform(thread_ / 32), group = warp % 2;
    static_assert(kCopiers % 2 == 0 && kPackedParts == 2 * kWindowParts);
    const AttentionChunk chunk = chunks.at(group);
    const int count = kPackedParts + V::chunks(slots).count();
    wait_for_inputs();
    if (lane() > 0) return;
#pragma unroll 1
    for (int i = warp; i < count; i += kCopiers) {
      if (i < kPackedParts) {
        copy_packed_part(chunk, group, i / 2);
      } else {
        // Behind what is waited for first.
        barrier_wait(&shared_.query_there, 0);
        const int stage = i - kPackedParts;
        barrier_expect(&shared_.full[stage], P::kStageBytes);
        copy_bulk(shared_.ring[stage], of_.packed + P::values(V::slice(rank_), stage),
                  P::kStageBytes, &shared_.full[stage]);
      }
    }
  }
  // For scores, of the chunk that a warpgroup has.
  __device__ void copy_packed_part(const AttentionChunk& chunk, int group, int part) const {
    using P = PackedKeys;
    if (part >= score_parts(chunk)) return;
    const int latent = chunk.first - P::kWindowGroups;
    const int codes =
        chunk.window ? P::window_codes(part, chunk.first) : P::latent_codes(part, latent);
    const int scales =
        chunk.window ? P::window_scales(chunk.first) : P::latent_scales(part, latent);
    const auto code_bytes = static_cast<uint32_t>(chunk.count * P::kCodesOfGroup);
    const auto scale_bytes = static_cast<uint32_t>(chunk.count * P::kScalesOfGroup);
    const int stage = packed_part(group, part);
    uint8_t* to = shared_.weights + stage * kStageBytes;
    Barrier* there = &shared_.parts_there[stage];
    barrier_expect(there, code_bytes + scale_bytes);
    copy_bulk(to, of_.packed + codes, code_bytes, there);
    copy_bulk(to + kScoreScales, of_.packed + scales, scale_bytes, there);
  }

  // A token's keys for both products.
  __device__ void copy(const Slots& slots, int turn) {
    rows_ = shared_.rows[turn % 2];
    copy_scores(slots);
    copy_all_values(slots);
  }

  __device__ void copy_all_values(const Slots& slots) {
    const AttentionChunks chunks = V::chunks(slots);
    const int count = chunks.count();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (my_stage()) copy_values(chunks.at(i));
      ++copied_;
    }
  }

  __device__ int lane() const { return thread_ % 32; }
  __device__ bool my_stage() const { return copied_ % kStages == uniform(thread_ / 32); }
  // Stages begin empty, or with whole rows.
  template <bool kWithRows = false>
  __device__ uint32_t begin_stage() {
    const RingPlace at(copied_);
    barrier_wait(&shared_.empty[at.stage], kWithRows ? at.parity : at.parity ^ 1);
    return shared_address(shared_.ring[at.stage]);
  }
  __device__ void end_stage() {
    arrive_after_copies(shared_address(&shared_.full[RingPlace(copied_).stage]));
  }

  // The rows of the block's share, all at once: those of this step by the helpers, when the
  // kernel's inputs are there, the others by those who copy.
  __device__ void copy_whole_rows(const Slots& slots, bool of_step) {
    const AttentionChunks chunks = attention_score_chunks(own_share(slots), slots.window_groups());
    const AttentionRows place(chunks);
    const int count = chunks.count();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const AttentionChunk chunk = chunks.at(i);
      const int first = chunk.first * kGroupKeys, end = chunk.count * kGroupKeys;
      const int held = chunk.window ? max(0, min(end, slots.window_held - first)) : end;
      const uint32_t to = shared_address(shared_.ring[0]) + place.at(i);
      if (chunk.window) {
        copy_rows_of<kAttentionWindowRow, kAttentionWindowPitch>(to, first, of_step ? held : 0,
                                                                 of_step ? end : held, of_step);
      } else if (!of_step) {
        copy_rows_of<kAttentionLatentRow, kAttentionLatentPitch>(to, first, 0, end, false);
      }
      arrive_after_copies(shared_address(&shared_.rows_there[i]));
    }
  }

  // Rows begin .. end - 1 of those from slot `first` on, of kBytes.
  template <int kBytes, int kPitch>
  __device__ void copy_rows_of(uint32_t to, int first, uint32_t begin, uint32_t end,
                               bool by_helpers) const {
    constexpr uint32_t kPieces = kBytes / 16;
    const uint8_t* const* rows = rows_ + first;
    const uint32_t step = by_helpers ? kHelpers : kFirstHelper;
#pragma unroll 4
    for (uint32_t at = begin * kPieces + thread_ - (by_helpers ? kFirstHelper : 0);
         at < end * kPieces; at += step) {
      const uint32_t row = at / kPieces, piece = (at - row * kPieces) * 16;
      copy_16_to(to + row * kPitch + piece, rows[row] + piece);
    }
  }

  __device__ void copy_scores(const Slots& slots) {
    const AttentionChunks chunks = attention_score_chunks(own_share(slots), slots.window_groups());
#pragma unroll 1
    for (int first = 0; first < chunks.count(); first += 2) {
      const int parts = max(score_parts(chunks.at(first)), score_parts(chunks.at(first + 1)));
#pragma unroll 1
      for (int i = 0; i < 2 * parts; ++i) {
        if (my_stage()) {
          const AttentionChunk chunk = chunks.at(first + i % 2);
          const uint32_t to = begin_stage();
          if (i / 2 < score_parts(chunk)) copy_part(to, chunk, i / 2);
          end_stage();
        }
        ++copied_;
      }
    }
  }

  // Of up to 64 keys, part `part` of the codes, and their scales.
  __device__ void copy_part(uint32_t to, const AttentionChunk& chunk, int part) {
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
  }

  __device__ void copy_values(const AttentionChunk& chunk) {
    const uint32_t to = begin_stage<kWholeRows<kBlocks>>();
    if (chunk.window) {
      // All scales of a row are one piece.
      copy_rows<V::kWindowCodes, 1, V::kWindowPitch>(to, chunk, kChannels);
    } else {
      constexpr int kPieces = V::kSlices == 1 ? 2 : 1;
      copy_rows<V::kLatentCodes, kPieces, V::kLatentPitch>(
          to, chunk, kChannels / 2 + V::slice(rank_) * (32 / V::kSlices) / 16 * 16);
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
    const int from = V::slice(rank_) * kCodes + piece;
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

  // By the helpers, when P is there: the inverses of the denominators over 2^56, and the turn back.
  __device__ void prepare_output(int helper, int turn) {
    static_assert(kHelpers == kHeads && kHelpers >= kPairs);
    float2 turned;
    const auto find_turn = [&] {
      if (helper < kPairs) turned = turn_at(of_.positions[token_of(turn)], of_.frequencies[helper]);
    };
    if constexpr (kBlocks > 1) find_turn();
    const float sink = of_.sink[helper];
    barrier_wait(&shared_.weights_there, turn & 1);
    if constexpr (kBlocks == 1) find_turn();
    if constexpr (kBlocks > 1) {
      for (int block = 0; block < kBlocks; ++block) {
        if (block != rank_) barrier_wait_for_cluster(&shared_.weights_from[block], 0);
      }
    }
    uint32_t count = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) count += shared_.sums[block][helper];
    // The next token's are added from zero.
    if constexpr (kBlocks == 1) shared_.sums[0][helper] = 0;
    const float sum = static_cast<float>(count) * 0x1p-22f +
                      expf(sink - shared_.largest[helper] * (of_.scale * kValueScaleInverse));
    shared_.inverses[helper] = kValueScaleInverse / sum;
    if (helper < kPairs) shared_.turns[helper] = turned;
    barrier_arrive(&shared_.output_ready);
  }

  const AttentionParameters& of_;
  const CUtensorMap& queries_;
  Shared& shared_;
  const uint8_t* const* rows_ = nullptr;
  int rank_, thread_, copied_ = 0;
};

}  // namespace cachalot::cuda::tiles
