// Radix selection. A pivot that at least k scores reach is found from the leading 11 bits of a few
// scores: the largest of each thread, of which k reach it too. What reaches it is listed in order,
// a few hundred more than k, and among these the other bits decide. A row of up to 40 K scores is
// one block's, in registers; of more, a cluster's. Where the list does not fit, the bits of all
// scores decide: slower, the same result.
#include <cooperative_groups.h>

#include <type_traits>

#include "backend/cuda/indexer_selection.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

namespace cooperative = cooperative_groups;

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kDigits = 2048;  // of 11 bits
constexpr int kFirstShift = 21, kSecondShift = 10;
constexpr int kMostParts = static_cast<int>(IndexerPlan::kMostSelectSplits);
constexpr int kMostFours = 10;  // fours of scores that a thread holds
static_assert(IndexerPlan::kHeldScores == 4 * kMostFours * kThreads);

// Larger for larger numbers; 0 for none.
__device__ inline uint32_t order_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
// The number of that order.
__device__ inline float value_of(uint32_t order) {
  return __uint_as_float(order ^ (static_cast<int32_t>(order) < 0 ? 0x80000000u : ~0u));
}
constexpr float kNone = __builtin_nanf("");  // reaches no pivot

// Shared by the steps of a selection; the list follows, then the block's part of the scores.
struct Shared {
  int32_t counts[kDigits];
  int32_t totals[kDigits];
  int32_t warp_sums[2][kWarps];
  uint32_t warp_lists[kWarps][(kMostFours + 1) / 2];
  int32_t listed[kMostParts];
  int32_t digit, above, equal;
  int32_t unused;

  __device__ uint32_t* memory() { return reinterpret_cast<uint32_t*>(this + 1); }
};
static_assert(sizeof(Shared) % 16 == 0);

// What is chosen from: score(i) and index(i) of 0 <= i < count, ascending.
struct Entries {
  const float* scores;
  int32_t count;
  const int32_t* blocks;  // the pool's candidates, or nullptr
  int32_t block_size;

  __device__ float score(int32_t i) const { return scores[i]; }
  // Four from a multiple of four on.
  __device__ float4 four(int32_t i) const {
    float4 out = *reinterpret_cast<const float4*>(scores + i);
    if (i + 1 >= count) out.y = kNone;
    if (i + 2 >= count) out.z = kNone;
    if (i + 3 >= count) out.w = kNone;
    return out;
  }
  __device__ float4 four_of_lane(int32_t i, float*) const {
    return i < count ? four(i) : float4{kNone, kNone, kNone, kNone};
  }
  __device__ int32_t index(int32_t i) const {
    return blocks == nullptr ? i : blocks[i / block_size] * block_size + i % block_size;
  }
};
struct Blocks {
  const float* scores;
  int32_t count, block_size;

  __device__ float score(int32_t i) const {
    if (i == count - 1) return INFINITY;  // the newest always qualifies
    const float* block = scores + static_cast<int64_t>(i) * block_size;
    float best = block[0];
    if (block_size == 8) {
      const float4 low = *reinterpret_cast<const float4*>(block);
      const float4 high = *reinterpret_cast<const float4*>(block + 4);
      best = fmaxf(fmaxf(fmaxf(low.x, low.y), fmaxf(low.z, low.w)),
                   fmaxf(fmaxf(high.x, high.y), fmaxf(high.z, high.w)));
    } else {
      for (int32_t j = 1; j < block_size; ++j) best = fmaxf(best, block[j]);
    }
    return best;
  }
  __device__ float4 four(int32_t i) const {
    const auto at = [&](int32_t j) { return j < count ? score(j) : kNone; };
    return {at(i), at(i + 1), at(i + 2), at(i + 3)};
  }
  // The same by a warp whose lanes have neighbouring fours: they read neighbouring scores. `room`:
  // 128 floats of the warp.
  __device__ float4 four_of_lane(int32_t i, float* room) const {
    if (block_size != 8) return four(i);
    const int32_t lane = threadIdx.x % 32, first = i - 4 * lane;
    const auto* fours = reinterpret_cast<const float4*>(scores) + 2 * static_cast<int64_t>(first);
    constexpr int kAtOnce = 4;  // loads in flight; registers are few
#pragma unroll 1
    for (int turn = 0; turn < 8; turn += kAtOnce) {
      float best[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int32_t at = 32 * (turn + j) + lane;
        const float4 half = first + at / 2 < count ? fours[at] : float4{kNone, kNone, kNone, kNone};
        best[j] = fmaxf(fmaxf(half.x, half.y), fmaxf(half.z, half.w));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float whole = fmaxf(best[j], __shfl_xor_sync(~0u, best[j], 1));
        if (lane % 2 == 0) room[16 * (turn + j) + lane / 2] = whole;
      }
    }
    __syncwarp();
    const float4 four = reinterpret_cast<const float4*>(room)[lane];
    __syncwarp();
    const auto at = [&](int32_t j, float best) {
      return j < count - 1 ? best : j == count - 1 ? INFINITY : kNone;
    };
    return {at(i, four.x), at(i + 1, four.y), at(i + 2, four.z), at(i + 3, four.w)};
  }
  __device__ int32_t index(int32_t i) const { return i; }
};
// A source whose part from `first` on this block keeps.
template <class Source>
struct Kept {
  const Source& source;
  const float* kept;
  int32_t first;

  __device__ float4 four(int32_t i) const {
    return *reinterpret_cast<const float4*>(kept + (i - first));
  }
};
// Some of a source.
template <class Source>
struct List {
  const Source& source;
  const uint32_t *orders, *places;
  int32_t count;

  __device__ uint32_t order(int32_t i) const { return orders[i]; }
  __device__ int32_t index(int32_t i) const {
    return source.index(static_cast<int32_t>(places[i]));
  }
};
template <class Source>
struct All {
  const Source& source;
  int32_t count;

  __device__ uint32_t order(int32_t i) const { return order_of(source.score(i)); }
  __device__ int32_t index(int32_t i) const { return source.index(i); }
};

// The sum of `value` over the threads before this one, and over all of them in `total`. The next
// call but one may use the same `warp_sums`, or any behind another __syncthreads().
__device__ inline int32_t sum_before(int32_t value, int32_t* warp_sums, int32_t& total) {
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t other = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  static_assert(kWarps == 32);
  const int32_t warp_sum = warp_sums[lane];
  total = __reduce_add_sync(~0u, warp_sum);
  return __reduce_add_sync(~0u, lane < warp ? warp_sum : 0) + sum - value;
}

__device__ inline void clear(int32_t* counts) {
  static_assert(kDigits == 2 * kThreads);
  reinterpret_cast<int2*>(counts)[threadIdx.x] = {0, 0};
}

// The digit of the k-th largest, how many have it, and how many a larger one. `counts` is complete
// behind a __syncthreads(); digit stays what it was where less than k were counted.
__device__ void find_digit(const int32_t* counts, int32_t k, Shared& shared) {
  const int32_t low = kDigits - 2 - 2 * static_cast<int32_t>(threadIdx.x);
  const int2 own = *reinterpret_cast<const int2*>(counts + low);
  int32_t total;
  const int32_t above = sum_before(own.x + own.y, shared.warp_sums[0], total);
  if (above < k && k <= above + own.y) {
    shared.digit = low + 1, shared.above = above, shared.equal = own.y;
  } else if (above + own.y < k && k <= above + own.y + own.x) {
    shared.digit = low, shared.above = above + own.y, shared.equal = own.x;
  }
  __syncthreads();
}

// Counts the digits at `shift` of what begins, above bit `known_shift`, like `prefix`; 32: of all.
template <class From>
__device__ void count(const From& from, uint32_t prefix, int known_shift, int shift,
                      int32_t* counts) {
  for (int32_t i = threadIdx.x; i < from.count; i += kThreads) {
    const uint32_t order = from.order(i);
    if (static_cast<uint64_t>(order) >> known_shift == prefix)
      atomicAdd(&counts[order >> shift & (kDigits - 1)], 1);
  }
  __syncthreads();
}

// Those of order `least` and more, and of those of order `least` the first `ties`: their indices to
// `out`, ascending.
template <class From>
__device__ void emit(const From& from, uint32_t least, int32_t ties, int32_t* out, Shared& shared) {
  int32_t larger_before = 0, equal_before = 0;
  for (int32_t start = 0, turn = 0; start < from.count; start += kThreads, turn ^= 1) {
    const int32_t i = start + static_cast<int32_t>(threadIdx.x);
    const uint32_t order = i < from.count ? from.order(i) : 0;
    const bool larger = order > least && i < from.count;
    const bool equal = order == least && i < from.count;
    int32_t total;
    const int32_t before =
        sum_before(static_cast<int32_t>(larger) | static_cast<int32_t>(equal) << 16,
                   shared.warp_sums[turn], total);
    const int32_t larger_rank = larger_before + (before & 0xFFFF);
    const int32_t equal_rank = equal_before + (before >> 16);
    if (larger || (equal && equal_rank < ties)) {
      out[larger_rank + min(equal_rank, ties)] = from.index(i);
    }
    larger_before += total & 0xFFFF;
    equal_before += total >> 16;
  }
}

// The k best. shared.totals has the leading digits counted, shared.counts is clear.
template <class From>
__device__ void decide(const From& from, int32_t k, int32_t* out, Shared& shared) {
  find_digit(shared.totals, k, shared);
  auto prefix = static_cast<uint32_t>(shared.digit);
  int32_t above = shared.above;
  // Where all that begin so are chosen, the bits that follow do not matter.
  if (above + shared.equal == k && prefix > 0) {
    return emit(from, (prefix << kFirstShift) - 1, 0, out, shared);
  }
  count(from, prefix, kFirstShift, kSecondShift, shared.counts);
  find_digit(shared.counts, k - above, shared);
  prefix = prefix << (kFirstShift - kSecondShift) | static_cast<uint32_t>(shared.digit);
  above += shared.above;
  if (above + shared.equal == k && prefix > 0) {
    return emit(from, (prefix << kSecondShift) - 1, 0, out, shared);
  }
  clear(shared.counts);
  __syncthreads();
  // The last digit has a bit of the one before, all alike.
  count(from, prefix, kSecondShift, 0, shared.counts);
  find_digit(shared.counts, k - above, shared);
  above += shared.above;
  const uint32_t least =
      prefix << kSecondShift | (static_cast<uint32_t>(shared.digit) & ((1u << kSecondShift) - 1));
  emit(from, least, k - above, out, shared);
}

template <class Source>
__device__ void decide_among_all(const Source& source, int32_t k, int32_t* out, Shared& shared) {
  const All<Source> all{source, source.count};
  __syncthreads();
  clear(shared.counts);
  clear(shared.totals);
  __syncthreads();
  count(all, 0, 32, kFirstShift, shared.totals);
  decide(all, k, out, shared);
}

__device__ inline float one_of(const float4& four, int i) {
  return i < 2 ? (i == 0 ? four.x : four.y) : i == 2 ? four.z : four.w;
}

// One block, whose threads hold 4 * kFours scores each. The counts are clear.
template <int kFours, class Source>
__device__ void choose_held(const Source& source, int32_t k, int32_t capacity, int32_t* out,
                            Shared& shared) {
  const int32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  uint32_t* const orders = shared.memory();
  uint32_t* const places = orders + capacity;
  float4 held[kFours];
#pragma unroll
  for (int c = 0; c < kFours; ++c) {
    held[c] = source.four_of_lane(4 * (c * kThreads + thread),
                                  reinterpret_cast<float*>(orders) + 128 * warp);
  }
  const auto tally = [&](float score) {
    if (score == score) atomicAdd(&shared.counts[order_of(score) >> kFirstShift], 1);
  };
  if (min((source.count + 3) / 4, kThreads) >= k) {
    float most = kNone;
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      most = fmaxf(most, fmaxf(fmaxf(held[c].x, held[c].y), fmaxf(held[c].z, held[c].w)));
    }
    tally(most);
  } else {
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      tally(held[c].x), tally(held[c].y), tally(held[c].z), tally(held[c].w);
    }
  }
  __syncthreads();
  find_digit(shared.counts, k, shared);
  const float pivot = value_of(static_cast<uint32_t>(shared.digit) << kFirstShift);
  clear(shared.counts);
  // Which of the thread's reach the pivot; how many of each four, two fours to a word, over the
  // threads of the warp.
  constexpr int kWords = (kFours + 1) / 2;
  using Mask = std::conditional_t<(kFours > 8), uint64_t, uint32_t>;
  Mask reach = 0;
  uint32_t own[kWords] = {}, sums[kWords];
#pragma unroll
  for (int c = 0; c < kFours; ++c) {
    const uint32_t four = (held[c].x >= pivot) + (held[c].y >= pivot) * 2 +
                          (held[c].z >= pivot) * 4 + (held[c].w >= pivot) * 8;
    reach |= static_cast<Mask>(four) << (4 * c);
    own[c / 2] += static_cast<uint32_t>(__popc(four)) << (16 * (c % 2));
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    sums[w] = own[w];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, sums[w], distance);
      if (lane >= distance) sums[w] += other;
    }
    if (lane == 31) shared.warp_lists[warp][w] = sums[w];
  }
  __syncthreads();
  int32_t listed = 0;
  uint32_t first[kWords];  // places in the list, as `own`
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const uint32_t warp_sum = shared.warp_lists[lane][w];
    const uint32_t total = __reduce_add_sync(~0u, warp_sum);
    const uint32_t before = __reduce_add_sync(~0u, lane < warp ? warp_sum : 0) + sums[w] - own[w];
    const uint32_t odd_from = static_cast<uint32_t>(listed) + (total & 0xFFFF);
    first[w] = before + static_cast<uint32_t>(listed) + (odd_from << 16);
    listed = static_cast<int32_t>(odd_from + (total >> 16));
  }
  if (listed < k || listed > capacity) return decide_among_all(source, k, out, shared);
#pragma unroll 1
  for (Mask left = reach; left != 0; left &= left - 1) {
    // Few are: they are read again, because registers have no addresses, and code for each of them
    // would have to be brought.
    const int bit = __ffsll(static_cast<int64_t>(left)) - 1, c = bit / 4;
    uint32_t word = first[0];
#pragma unroll
    for (int w = 1; w < kWords; ++w) word = c / 2 == w ? first[w] : word;
    const auto before = static_cast<uint32_t>(reach >> (4 * c)) & ((1u << bit % 4) - 1);
    const uint32_t at = (word >> (16 * (c % 2)) & 0xFFFF) + static_cast<uint32_t>(__popc(before));
    const int32_t place = 4 * (c * kThreads + thread) + bit % 4;
    const float score = kFours == 1 ? one_of(held[0], bit) : source.score(place);
    const uint32_t order = order_of(score);
    orders[at] = order;
    places[at] = static_cast<uint32_t>(place);
    atomicAdd(&shared.totals[order >> kFirstShift], 1);
  }
  __syncthreads();
  decide(List<Source>{source, orders, places, listed}, k, out, shared);
}

// Entries first .. last - 1 that reach the pivot, in order, to a list, as far as they fit; returns
// how many there are. `first` is a multiple of four.
template <class Part>
__device__ int32_t list_part(const Part& part, int32_t first, int32_t last, float pivot,
                             int32_t capacity, uint32_t* orders, uint32_t* places, Shared& shared) {
  int32_t listed = 0;
  const auto four_at = [&](int32_t i) {
    return i < last ? part.four(i) : float4{kNone, kNone, kNone, kNone};
  };
  float4 next = four_at(first + 4 * static_cast<int32_t>(threadIdx.x));
  for (int32_t start = first, turn = 0; start < last; start += 4 * kThreads, turn ^= 1) {
    const int32_t own = start + 4 * static_cast<int32_t>(threadIdx.x);
    const float4 four = next;
    next = four_at(own + 4 * kThreads);
    const float scores[4] = {four.x, four.y, four.z, four.w};
    int32_t mine = 0, total;
#pragma unroll
    for (const float score : scores) mine += score >= pivot;
    int32_t at = listed + sum_before(mine, shared.warp_sums[turn], total);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (scores[i] >= pivot) {
        if (at < capacity) {
          orders[at] = order_of(scores[i]);
          places[at] = static_cast<uint32_t>(own + i);
        }
        ++at;
      }
    }
    listed += total;
  }
  return listed;
}

// The part of `count` things that block x of gridDim.x reads: whole turns of list_part.
__device__ int2 part_of(int32_t count) {
  constexpr int32_t kTurn = 4 * kThreads;
  const auto parts = static_cast<int32_t>(gridDim.x);
  const int32_t each = ((count + kTurn - 1) / kTurn + parts - 1) / parts * kTurn;
  const int32_t first = min(static_cast<int32_t>(blockIdx.x) * each, count);
  return {first, min(first + each, count)};
}

// The blocks of a cluster, each with a part of the scores, of which it keeps up to `room`. The
// counts are clear.
template <class Source>
__device__ void choose_in_parts(const Source& source, int32_t k, int32_t capacity, int32_t room,
                                int32_t* out, Shared& shared) {
  const auto cluster = cooperative::this_cluster();
  const auto parts = static_cast<int32_t>(gridDim.x), rank = static_cast<int32_t>(blockIdx.x);
  uint32_t* const orders = shared.memory();
  uint32_t* const places = orders + capacity;
  auto* const keep = reinterpret_cast<float*>(places + capacity);
  cluster.sync();  // their counts are clear too
  const int2 part = part_of(source.count);
  const bool kept = part.y - part.x <= room, by_fours = source.count / 4 >= k;
  constexpr int32_t kTurn = 4 * kThreads, kAhead = 4;  // loads in flight
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
        tally(fmaxf(fmaxf(ahead[j].x, ahead[j].y), fmaxf(ahead[j].z, ahead[j].w)));
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
  if (rank > 0) return;
  if (!fits) return decide_among_all(source, k, out, shared);
  const List<Source> list{source, orders, places, all};
  count(list, 0, 32, kFirstShift, shared.totals);
  decide(list, k, out, shared);
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
  if (source.count > static_cast<int32_t>(IndexerPlan::kHeldScores)) {
    return choose_in_parts(source, k, capacity, room, out, shared);
  }
  if (blockIdx.x > 0) return;
  if (source.count <= k) {
    for (int32_t i = threadIdx.x; i < k; i += kThreads)
      out[i] = i < source.count ? source.index(i) : -1;
  } else if (source.count <= 4 * kThreads) {
    choose_held<1>(source, k, capacity, out, shared);
  } else if (source.count <= 16 * kThreads) {
    choose_held<4>(source, k, capacity, out, shared);
  } else if (source.count <= 32 * kThreads) {
    choose_held<8>(source, k, capacity, out, shared);
  } else {
    choose_held<kMostFours>(source, k, capacity, out, shared);
  }
}

// blockIdx.x: of a cluster, which has a row; y: a row of the chunk; z: a task. `capacity`: of the
// list; `room`: entries of its part that a block can keep.
__global__ void __launch_bounds__(kThreads)
    select_kernel(Selection of, int32_t capacity, int32_t room) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  clear(shared.counts);
  clear(shared.totals);
  if (threadIdx.x == 0) shared.digit = 0;
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
