// The steps of a selection, by the threads of a block or a cluster. For .cu files.
#pragma once

#include "backend/cuda/indexer_selection.h"

namespace cachalot::cuda::choice {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr int kFirstShift = 32 - kDigitBits, kSecondShift = kFirstShift - kDigitBits;
constexpr int kMostParts = static_cast<int>(IndexerPlan::kMostSelectSplits);
constexpr int kMostFew = 32;         // that share a digit and are ranked by a warp
constexpr int kTurn = 4 * kThreads;  // scores that are read in one turn

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

// Shared by the steps of a selection; the list follows, then the scores that the block keeps.
struct alignas(16) Shared {
  int32_t counts[kDigits];
  int32_t totals[kDigits];
  int32_t warp_sums[2][kWarps];
  int32_t listed[kMostParts];
  int32_t digit, above, equal;
  uint32_t highest;        // order
  uint32_t few[kMostFew];  // orders
  int32_t few_count;

  __device__ uint32_t* memory() { return reinterpret_cast<uint32_t*>(this + 1); }
};

__device__ inline float largest(const float4& four) {
  return fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
}

constexpr int kAhead = 4;  // loads in flight

// What is chosen from: score(i) and index(i) of 0 <= i < count, ascending. keep() copies all
// scores, and behind them kNone up to a multiple of four, and returns the largest that this thread
// copied, which has some if it is one of `sets()`.
struct Entries {
  const float* scores;
  int32_t count;
  const int32_t* blocks;  // the pool's candidates, or nullptr
  int32_t block_size;

  __device__ float score(int32_t i) const { return scores[i]; }
  __device__ float4 whole_four(int32_t i) const {
    return *reinterpret_cast<const float4*>(scores + i);
  }
  // Four from a multiple of four on.
  __device__ float4 four(int32_t i) const {
    float4 out = whole_four(i);
    if (i + 1 >= count) out.y = kNone;
    if (i + 2 >= count) out.z = kNone;
    if (i + 3 >= count) out.w = kNone;
    return out;
  }
  __device__ int32_t index(int32_t i) const {
    return blocks == nullptr ? i : blocks[i / block_size] * block_size + i % block_size;
  }
  __device__ int32_t sets() const { return min((count + 3) / 4, kThreads); }
  __device__ float keep(float* to) const {
    float most = kNone;
    for (int32_t i = 4 * static_cast<int32_t>(threadIdx.x); i < count; i += kAhead * kTurn) {
      float4 ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (i + j * kTurn < count) ahead[j] = whole_four(i + j * kTurn);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int32_t at = i + j * kTurn;
        if (at >= count) break;
        if (at + 3 >= count) ahead[j] = four(at);
        *reinterpret_cast<float4*>(to + at) = ahead[j];
        most = fmaxf(most, largest(ahead[j]));
      }
    }
    return most;
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
      best = fmaxf(largest(*reinterpret_cast<const float4*>(block)),
                   largest(*reinterpret_cast<const float4*>(block + 4)));
    } else {
      for (int32_t j = 1; j < block_size; ++j) best = fmaxf(best, block[j]);
    }
    return best;
  }
  __device__ float4 four(int32_t i) const {
    const auto at = [&](int32_t j) { return j < count ? score(j) : kNone; };
    return {at(i), at(i + 1), at(i + 2), at(i + 3)};
  }
  __device__ int32_t index(int32_t i) const { return i; }
  __device__ int32_t sets() const { return min(count - 1, kThreads / 2); }
  __device__ float keep(float* to) const {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (thread < 4 && count - 1 + thread < (count + 3) / 4 * 4) {
      to[count - 1 + thread] = thread == 0 ? INFINITY : kNone;
    }
    float most = kNone;
    if (block_size != 8) {
      for (int32_t i = thread; i < count - 1; i += kThreads) {
        to[i] = score(i);
        most = fmaxf(most, to[i]);
      }
      return most;
    }
    // A block is two threads', so that a warp reads what lies together.
    const int32_t all = 8 * (count - 1), lane = thread % 32;
    for (int32_t i = 4 * thread; i - 4 * lane < all; i += kAhead * kTurn) {
      float4 ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        ahead[j] = {kNone, kNone, kNone, kNone};
        if (i + j * kTurn < all) {
          ahead[j] = *reinterpret_cast<const float4*>(scores + i + j * kTurn);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int32_t at = i + j * kTurn;
        const float half = largest(ahead[j]);
        const float whole = fmaxf(half, __shfl_xor_sync(~0u, half, 1));
        if (lane % 2 == 0 && at < all) to[at / 8] = whole;
        most = fmaxf(most, whole);
      }
    }
    return lane % 2 == 0 ? most : kNone;
  }
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

// Counts the digits at `shift` of orders less `base`, of those that are at most `range`.
template <class From>
__device__ void count(const From& from, uint32_t base, uint32_t range, int shift, int32_t* counts) {
  for (int32_t i = threadIdx.x; i < from.count; i += kThreads) {
    const uint32_t order = from.order(i), distance = order - base;
    if (order >= base && distance <= range) atomicAdd(&counts[distance >> shift], 1);
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

// Where few have the digit that was found, of which the `left` best are chosen: each warp ranks
// them. `last`: larger distances have the largest digit.
template <class From>
__device__ void emit_few(const From& from, uint32_t base, int shift, uint32_t last, int32_t left,
                         int32_t* out, Shared& shared) {
  const auto digit = static_cast<uint32_t>(shared.digit);
  for (int32_t i = threadIdx.x; i < from.count; i += kThreads) {
    const uint32_t order = from.order(i);
    if (order >= base && min((order - base) >> shift, last) == digit) {
      shared.few[atomicAdd(&shared.few_count, 1)] = order;
    }
  }
  __syncthreads();
  const int32_t lane = threadIdx.x % 32, few = shared.equal;
  const uint32_t own = lane < few ? shared.few[lane] : 0;
  int32_t larger = 0, same = 0;
  for (int32_t i = 0; i < few; ++i) {
    const uint32_t other = __shfl_sync(~0u, own, i);
    larger += other > own;
    same += other == own;
  }
  const uint32_t kth = __ballot_sync(~0u, lane < few && larger < left && left <= larger + same);
  const int source = __ffs(static_cast<int>(kth)) - 1;
  emit(from, __shfl_sync(~0u, own, source), left - __shfl_sync(~0u, larger, source), out, shared);
}

// The k best. shared.totals has the digits at `shift` counted of orders less `base`, which are at
// least 0 - all larger ones as the largest digit - and shared.counts is clear.
template <class From>
__device__ void decide(const From& from, uint32_t base, int shift, int32_t k, int32_t* out,
                       Shared& shared) {
  int32_t *counts = shared.totals, *next = shared.counts, above = 0;
  uint32_t last = kDigits - 1;  // that stands for larger ones
  while (true) {
    find_digit(counts, k - above, shared);
    const auto digit = static_cast<uint32_t>(shared.digit);
    const uint32_t least = base + (digit << shift);
    // Where all of that digit are chosen, the bits that follow do not matter.
    if (above + shared.above + shared.equal == k && least > 0) {
      return emit(from, least - 1, 0, out, shared);
    }
    if (shared.equal <= kMostFew) {
      return emit_few(from, base, shift, last, k - above - shared.above, out, shared);
    }
    uint32_t range = ~0u;
    if (digit == last) {
      base = 0, shift = kFirstShift;
    } else {
      base = least, above += shared.above;
      if (shift == 0) return emit(from, least, k - above, out, shared);
      range = (1u << shift) - 1;
      shift = max(shift - kDigitBits, 0);
    }
    last = ~0u;
    clear(counts);
    count(from, base, range, shift, next);
    int32_t* const counted = next;
    next = counts, counts = counted;
  }
}

template <class Source>
__device__ void decide_among_all(const Source& source, int32_t k, int32_t* out, Shared& shared) {
  const All<Source> all{source, source.count};
  __syncthreads();
  clear(shared.counts);
  clear(shared.totals);
  __syncthreads();
  count(all, 0, ~0u, kFirstShift, shared.totals);
  decide(all, 0, kFirstShift, k, out, shared);
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

}  // namespace cachalot::cuda::choice
