// Radix selection. A pivot that at least k scores reach is found from the leading 11 bits of a few
// scores: the largest of each thread, of which k reach it too. What reaches it is listed in order,
// a few hundred more than k, and among these the bits that follow decide. A row of up to 40 K
// scores is one block's, which keeps them; of more, a cluster's. Where the list does not fit, as of
// scores that are much alike, the pivot is taken from 22 bits; and where it does not fit then, the
// bits of all scores decide: slower, the same result.
#include <cooperative_groups.h>

#include "backend/cuda/indexer_choice.cuh"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

namespace cooperative = cooperative_groups;
using namespace choice;

// One block once more, where what reaches the first pivot does not fit: one from 22 bits of the
// largest of every four.
template <class Source>
__device__ void choose_again(const Source& source, int32_t k, int32_t capacity, int32_t* out,
                             Shared& shared) {
  uint32_t* const orders = shared.memory();
  uint32_t* const places = orders + capacity;
  const bool by_fours = source.count / 4 >= k;
  uint32_t prefix = 0;
  int32_t above = 0;
#pragma unroll 1
  for (int shift = kFirstShift; shift >= kSecondShift; shift -= kDigitBits) {
    __syncthreads();
    clear(shared.counts);
    __syncthreads();
    const auto tally = [&](float score) {
      const uint32_t order = order_of(score);
      if (score == score && order >> shift >> kDigitBits == prefix)
        atomicAdd(&shared.counts[order >> shift & (kDigits - 1)], 1);
    };
#pragma unroll 4
    for (int32_t i = 4 * static_cast<int32_t>(threadIdx.x); i < source.count; i += kTurn) {
      const float4 four = source.four(i);
      if (by_fours) {
        tally(largest(four));
      } else {
        tally(four.x), tally(four.y), tally(four.z), tally(four.w);
      }
    }
    __syncthreads();
    find_digit(shared.counts, k - above, shared);
    prefix = prefix << kDigitBits | static_cast<uint32_t>(shared.digit);
    above += shared.above;
  }
  const int32_t listed = list_part(source, 0, source.count, value_of(prefix << kSecondShift),
                                   capacity, orders, places, shared);
  if (listed < k || listed > capacity) return decide_among_all(source, k, out, shared);
  __syncthreads();
  clear(shared.counts);
  clear(shared.totals);
  __syncthreads();
  const List<Source> list{source, orders, places, listed};
  count(list, 0, ~0u, kFirstShift, shared.totals);
  decide(list, 0, kFirstShift, k, out, shared);
}

// One block, which keeps all scores. The counts are clear. Returns false where what reaches the
// pivot does not fit.
template <class Source>
__device__ bool choose_kept(const Source& source, int32_t k, int32_t capacity, int32_t* out,
                            Shared& shared) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  uint32_t* const orders = shared.memory();
  uint32_t* const places = orders + capacity;
  auto* const kept = reinterpret_cast<float*>(places + capacity);
  const float most = source.keep(kept);
  const uint32_t highest = __reduce_max_sync(~0u, most == most ? order_of(most) : 0);
  if (thread % 32 == 0) atomicMax(&shared.highest, highest);
  __syncthreads();

  // A thread lists neighbouring scores: an odd number of fours, so that eight threads read fours
  // in different banks.
  const int32_t count = source.count;
  const int32_t fours = ((count + kTurn - 1) / kTurn) | 1, first = 4 * fours * thread;
  uint64_t reach;  // which of them reach the pivot
  static_assert(IndexerPlan::kHeldScores / kTurn < 64 / 4);
  int32_t listed, at, above = 0;
  uint32_t prefix = 0;  // of the pivot, above the digit that is looked for
  int shift = kFirstShift;
#pragma unroll 1
  while (true) {
    const auto tally = [&](float score) {
      const uint32_t order = order_of(score);
      if (score == score && order >> shift >> kDigitBits == prefix)
        atomicAdd(&shared.counts[order >> shift & (kDigits - 1)], 1);
    };
    if (source.sets() >= k) {
      tally(most);
    } else {
      for (int32_t i = thread; i < count; i += kThreads) tally(kept[i]);
    }
    __syncthreads();
    find_digit(shared.counts, k - above, shared);
    prefix = prefix << kDigitBits | static_cast<uint32_t>(shared.digit);
    above += shared.above;
    const float pivot = value_of(prefix << shift);
    clear(shared.counts);
    reach = 0;
    for (int32_t c = 0; c < fours && first + 4 * c < count; ++c) {
      const float4 four = *reinterpret_cast<const float4*>(kept + first + 4 * c);
      const uint32_t of_four =
          (four.x >= pivot) + (four.y >= pivot) * 2 + (four.z >= pivot) * 4 + (four.w >= pivot) * 8;
      reach |= static_cast<uint64_t>(of_four) << (4 * c);
    }
    at = sum_before(__popcll(reach), shared.warp_sums[1], listed);
    if (listed <= capacity || shift == kSecondShift) break;
    shift = kSecondShift;
  }
  if (listed < k || listed > capacity) return false;
  // Digits between the pivot and the highest score. Infinity, which the newest block has, may be
  // above: the largest digit is left to that.
  const uint32_t base = prefix << shift, range = shared.highest - base;
  int digit_shift = max(kFirstShift - __clz(static_cast<int32_t>(range)), 0);
  digit_shift += range >> digit_shift == kDigits - 1;
#pragma unroll 1
  for (; reach != 0; reach &= reach - 1, ++at) {
    const int32_t i = first + __ffsll(static_cast<int64_t>(reach)) - 1;
    const uint32_t order = order_of(kept[i]);
    orders[at] = order;
    places[at] = static_cast<uint32_t>(i);
    atomicAdd(&shared.totals[min((order - base) >> digit_shift, uint32_t{kDigits - 1})], 1);
  }
  __syncthreads();
  decide(List<Source>{source, orders, places, listed}, base, digit_shift, k, out, shared);
  return true;
}

// The part of `count` things that block x of gridDim.x reads: whole turns of list_part.
__device__ int2 part_of(int32_t count) {
  const auto parts = static_cast<int32_t>(gridDim.x);
  const int32_t each = ((count + kTurn - 1) / kTurn + parts - 1) / parts * kTurn;
  const int32_t first = min(static_cast<int32_t>(blockIdx.x) * each, count);
  return {first, min(first + each, count)};
}

// The blocks of a cluster, each with a part of the scores, of which it keeps up to `room`. The
// counts are clear. Returns false to the first block where what reaches the pivot does not fit.
template <class Source>
__device__ bool choose_in_parts(const Source& source, int32_t k, int32_t capacity, int32_t room,
                                int32_t* out, Shared& shared) {
  const auto cluster = cooperative::this_cluster();
  const auto parts = static_cast<int32_t>(gridDim.x), rank = static_cast<int32_t>(blockIdx.x);
  uint32_t* const orders = shared.memory();
  uint32_t* const places = orders + capacity;
  auto* const keep = reinterpret_cast<float*>(places + capacity);
  cluster.sync();  // their counts are clear too
  const int2 part = part_of(source.count);
  const bool kept = part.y - part.x <= room, by_fours = source.count / 4 >= k;
  const auto tally = [&](float score) {
    if (score == score) atomicAdd(&shared.counts[order_of(score) >> kFirstShift], 1);
  };
  for (int32_t start = part.x + 4 * static_cast<int32_t>(threadIdx.x); start < part.y;
       start += kAhead * kTurn) {
    float4 ahead[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (start + j * kTurn < part.y) ahead[j] = source.four(start + j * kTurn);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (start + j * kTurn >= part.y) break;
      if (kept) *reinterpret_cast<float4*>(keep + (start + j * kTurn - part.x)) = ahead[j];
      if (by_fours) {
        tally(largest(ahead[j]));
      } else {
        tally(ahead[j].x), tally(ahead[j].y), tally(ahead[j].z), tally(ahead[j].w);
      }
    }
  }
  __syncthreads();
  // Of the digits few occur: each block adds its own to everybody's totals.
  for (int32_t i = threadIdx.x; i < kDigits; i += kThreads) {
    const int32_t own = shared.counts[i];
    if (own == 0) continue;
    for (int32_t other = 0; other < parts; ++other) {
      atomicAdd(cluster.map_shared_rank(&shared.totals[i], other), own);
    }
  }
  cluster.sync();
  find_digit(shared.totals, k, shared);
  const float pivot = value_of(static_cast<uint32_t>(shared.digit) << kFirstShift);
  const int32_t listed =
      kept ? list_part(Kept<Source>{source, keep, part.x}, part.x, part.y, pivot, capacity, orders,
                       places, shared)
           : list_part(source, part.x, part.y, pivot, capacity, orders, places, shared);
  if (static_cast<int32_t>(threadIdx.x) < parts) {
    *cluster.map_shared_rank(&shared.listed[rank], static_cast<int>(threadIdx.x)) = listed;
  }
  cluster.sync();
  int32_t before = 0, all = 0;
  for (int32_t other = 0; other < parts; ++other) {
    if (other < rank) before += shared.listed[other];
    all += shared.listed[other];
  }
  const bool fits = all >= k && all <= capacity;
  if (fits && rank > 0) {
    uint32_t* const to_orders = cluster.map_shared_rank(orders, 0) + before;
    uint32_t* const to_places = cluster.map_shared_rank(places, 0) + before;
    for (int32_t i = threadIdx.x; i < listed; i += kThreads) {
      to_orders[i] = orders[i];
      to_places[i] = places[i];
    }
  }
  clear(shared.counts);
  clear(shared.totals);
  cluster.sync();
  if (rank > 0) return true;
  if (!fits) return false;
  const List<Source> list{source, orders, places, all};
  count(list, 0, ~0u, kFirstShift, shared.totals);
  decide(list, 0, kFirstShift, k, out, shared);
  return true;
}

__device__ Entries entries_of(const IndexPool& pool, int32_t t, Shared& shared) {
  const int32_t visible = pool.visible(t);
  if (pool.candidates == nullptr) return {pool.scores_of(t), visible, nullptr, 1};
  // Blocks ascend, so that those that hold visible entries come first, and only the last of them
  // can reach past the visible ones.
  const int32_t* blocks = pool.blocks_of(t);
  const int32_t size = pool.candidate_block;
  int32_t own = 0, used;
  for (int32_t i = threadIdx.x; i < pool.candidate_blocks; i += kThreads) {
    own += blocks[i] >= 0 && blocks[i] * size < visible;
  }
  sum_before(own, shared.warp_sums[1], used);
  const int32_t last = used == 0 ? 0 : min(size, visible - blocks[used - 1] * size);
  return {pool.scores_of(t), used == 0 ? 0 : (used - 1) * size + last, blocks, size};
}
__device__ Blocks blocks_of(const IndexPool& pool, int32_t t) {
  const int32_t visible = pool.visible(t), size = pool.candidate_block;
  return {pool.scores_of(t), (visible + size - 1) / size, size};
}

template <class Source>
__device__ void choose(const Source& source, int32_t k, int32_t capacity, int32_t room,
                       int32_t* out, Shared& shared) {
  bool done;
  if (source.count <= k) {
    if (blockIdx.x > 0) return;
    for (int32_t i = threadIdx.x; i < k; i += kThreads)
      out[i] = i < source.count ? source.index(i) : -1;
    return;
  }
  if ((source.count + 3) / 4 * 4 <= min(room, static_cast<int32_t>(IndexerPlan::kHeldScores))) {
    if (blockIdx.x > 0) return;
    done = choose_kept(source, k, capacity, out, shared);
  } else {
    done = choose_in_parts(source, k, capacity, room, out, shared);
  }
  if (!done) choose_again(source, k, capacity, out, shared);
}

// blockIdx.x: of a cluster, which has a row; y: a row of the chunk; z: a task. `capacity`: of the
// list; `room`: entries of its part that a block can keep.
__global__ void __launch_bounds__(kThreads)
    select_kernel(Selection of, int32_t capacity, int32_t room) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  clear(shared.counts);
  clear(shared.totals);
  if (threadIdx.x == 0) {
    shared.digit = 0, shared.highest = 0, shared.few_count = 0;
    // Where fewer than k have a number, nothing finds a digit.
    shared.above = 0, shared.equal = 0;
  }
  // No kernel writes positions. Candidates are older than the kernel before this one, which writes
  // scores alone and, where there are some, let this one start after its own wait.
  const int32_t t = of.pool.first + static_cast<int32_t>(blockIdx.y);
  if (blockIdx.z == 0) {
    const Entries entries = entries_of(of.pool, t, shared);
    __syncthreads();
    wait_for_inputs();
    let_next_start();
    choose(entries, of.most_chosen, capacity, room,
           of.chosen + static_cast<int64_t>(t) * of.most_chosen, shared);
  } else {
    const Blocks blocks = blocks_of(of.pool, t);
    __syncthreads();
    wait_for_inputs();
    let_next_start();
    choose(blocks, of.most_built, capacity, room,
           of.built + static_cast<int64_t>(t) * of.most_built, shared);
  }
}

}  // namespace

void select_best(Queue& queue, const Selection& selection, const IndexerPlan& plan) {
  const auto rows = static_cast<unsigned>(selection.pool.count);
  const unsigned tasks = selection.built == nullptr ? 1 : 2;
  const int64_t words = 2 * plan.list_capacity + plan.kept_scores;
  launch(queue, "index_select", select_kernel,
         {.blocks = {static_cast<unsigned>(plan.select_splits), rows, tasks},
          .threads = kThreads,
          .shared_bytes = sizeof(Shared) + static_cast<size_t>(words) * sizeof(uint32_t),
          .cluster = static_cast<int>(plan.select_splits)},
         selection, static_cast<int32_t>(plan.list_capacity),
         static_cast<int32_t>(plan.kept_scores));
}

}  // namespace cachalot::cuda
