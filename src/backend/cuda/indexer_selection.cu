// Radix selection by a cluster of blocks, each with a part of a row's scores: the leading 11 bits
// of all are counted; those that are at least as large as the bits of the k-th are listed in order,
// a few hundred more than k; among them the other 21 bits decide. Where the list does not fit, the
// same runs over all scores.
#include <cooperative_groups.h>

#include <utility>

#include "backend/cuda/indexer_selection.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

namespace cooperative = cooperative_groups;

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kDigits = 2048;  // of 11 bits
constexpr int kFirstShift = 21, kSecondShift = 10;

// Larger for larger numbers; 0 for none.
__device__ inline uint32_t order_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// Shared by the steps of a selection; the list follows, then the block's part of the scores.
struct Shared {
  int32_t counts[kDigits];
  int32_t totals[kDigits];  // of the cluster
  int32_t warp_sums[kWarps];
  int32_t digit, above, equal, listed;

  __device__ uint32_t* memory() { return reinterpret_cast<uint32_t*>(this + 1); }
};
static_assert(sizeof(Shared) % 16 == 0);

// What is chosen from: order(i) and index(i) of 0 <= i < count, ascending.
struct Entries {
  const float* scores;
  int32_t count;
  const int32_t* blocks;  // the pool's candidates, or nullptr
  int32_t block_size;

  __device__ uint32_t order(int32_t i) const { return order_of(scores[i]); }
  // Four from a multiple of four on; behind `count` anything.
  __device__ uint4 orders(int32_t i) const {
    const float4 four = *reinterpret_cast<const float4*>(scores + i);
    return {order_of(four.x), order_of(four.y), order_of(four.z), order_of(four.w)};
  }
  __device__ int32_t index(int32_t i) const {
    return blocks == nullptr ? i : blocks[i / block_size] * block_size + i % block_size;
  }
};
struct Blocks {
  const float* scores;
  int32_t count, entries, block_size;

  __device__ uint32_t order(int32_t i) const {
    if (i == count - 1) return order_of(INFINITY);  // the newest always qualifies
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
    return order_of(best);
  }
  __device__ uint4 orders(int32_t i) const {
    const auto at = [&](int32_t j) { return j < count ? order(j) : 0; };
    return {at(i), at(i + 1), at(i + 2), at(i + 3)};
  }
  __device__ int32_t index(int32_t i) const { return i; }
};
// A source whose part from `first` on this block keeps.
template <class Source>
struct Kept {
  const Source& source;
  const uint32_t* kept;
  int32_t first;

  __device__ uint4 orders(int32_t i) const {
    return *reinterpret_cast<const uint4*>(kept + (i - first));
  }
  __device__ int32_t index(int32_t i) const { return source.index(i); }
};
struct List {
  const uint32_t *orders, *indices;
  int32_t count;

  __device__ uint32_t order(int32_t i) const { return orders[i]; }
  __device__ int32_t index(int32_t i) const { return static_cast<int32_t>(indices[i]); }
};

// The sum of `value` over the threads before this one, and over all of them in `total`.
__device__ inline int32_t sum_before(int32_t value, int32_t* warp_sums, int32_t& total) {
  const int32_t lane = threadIdx.x % 32;
  int32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t other = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();
  if (lane == 31) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  int32_t warp_sum = lane < kWarps ? warp_sums[lane] : 0;
  int32_t before = static_cast<int32_t>(threadIdx.x) / 32 > lane ? warp_sum : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    warp_sum += __shfl_xor_sync(~0u, warp_sum, distance);
    before += __shfl_xor_sync(~0u, before, distance);
  }
  total = warp_sum;
  return before + sum - value;
}

__device__ inline void clear(Shared& shared) {
  for (int i = threadIdx.x; i < kDigits; i += kThreads) shared.counts[i] = 0;
  __syncthreads();
}

// Counts the digits at `shift` of what begins, above `known_shift`, like `prefix`.
template <class Source>
__device__ void count(const Source& source, uint32_t prefix, int known_shift, int shift,
                      Shared& shared) {
  for (int32_t i = threadIdx.x; i < source.count; i += kThreads) {
    const uint32_t order = source.order(i);
    if (order >> known_shift == prefix)
      atomicAdd(&shared.counts[order >> shift & (kDigits - 1)], 1);
  }
  __syncthreads();
}

// The digit of the k-th largest, how many have it, and how many a larger one.
template <class Counts>
__device__ void find_digit(Counts counts, int32_t k, Shared& shared) {
  constexpr int kEach = kDigits / kThreads;
  const int32_t top = kDigits - 1 - static_cast<int32_t>(threadIdx.x) * kEach;
  int32_t own[kEach], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    own[i] = counts(top - i);
    sum += own[i];
  }
  int32_t above = sum_before(sum, shared.warp_sums, total);
  if (above < k && k <= above + sum) {
    for (int i = 0; i < kEach; ++i) {
      if (k <= above + own[i]) {
        shared.digit = top - i;
        shared.above = above;
        shared.equal = own[i];
        break;
      }
      above += own[i];
    }
  }
  __syncthreads();
}

// Of the source's entries those of order `least` and more, and of those of order `least` the first
// `ties`: their indices to `out`, ascending.
template <class Source>
__device__ void emit(const Source& source, uint32_t least, int32_t ties, int32_t* out,
                     Shared& shared) {
  int32_t larger_before = 0, equal_before = 0;
  for (int32_t start = 0; start < source.count; start += kThreads) {
    const int32_t i = start + static_cast<int32_t>(threadIdx.x);
    const uint32_t order = i < source.count ? source.order(i) : 0;
    const bool larger = order > least && i < source.count;
    const bool equal = order == least && i < source.count;
    int32_t total;
    const int32_t before = sum_before(
        static_cast<int32_t>(larger) | static_cast<int32_t>(equal) << 16, shared.warp_sums, total);
    const int32_t larger_rank = larger_before + (before & 0xFFFF);
    const int32_t equal_rank = equal_before + (before >> 16);
    if (larger || (equal && equal_rank < ties)) {
      out[larger_rank + min(equal_rank, ties)] = source.index(i);
    }
    larger_before += total & 0xFFFF;
    equal_before += total >> 16;
  }
}

// The k best of more than k; `digit`: the leading bits of the k-th, `above`: how many have larger
// ones.
template <class Source>
__device__ void finish(const Source& source, int32_t k, uint32_t digit, int32_t above, int32_t* out,
                       Shared& shared) {
  const auto own = [&](int32_t i) { return shared.counts[i]; };
  __syncthreads();
  clear(shared);
  count(source, digit, kFirstShift, kSecondShift, shared);
  find_digit(own, k - above, shared);
  const uint32_t prefix =
      digit << (kFirstShift - kSecondShift) | static_cast<uint32_t>(shared.digit);
  above += shared.above;
  __syncthreads();
  clear(shared);
  // The last digit has a bit of the one before, all alike.
  count(source, prefix, kSecondShift, 0, shared);
  find_digit(own, k - above, shared);
  above += shared.above;
  const uint32_t least =
      prefix << kSecondShift | (static_cast<uint32_t>(shared.digit) & ((1u << kSecondShift) - 1));
  emit(source, least, k - above, out, shared);
}

// Entries first .. last - 1 whose leading bits are at least `digit`, in order, to a list that they
// fit into; returns how many. `first` is a multiple of four.
template <class Source>
__device__ int32_t list_best(const Source& source, int32_t first, int32_t last, uint32_t digit,
                             uint32_t* orders, uint32_t* indices, Shared& shared) {
  constexpr int kEach = 4;
  int32_t listed = 0;
  const auto orders_at = [&](int32_t i) { return i < last ? source.orders(i) : uint4{0, 0, 0, 0}; };
  uint4 next = orders_at(first + static_cast<int32_t>(threadIdx.x) * kEach);
  for (int32_t start = first; start < last; start += kThreads * kEach) {
    const int32_t own = start + static_cast<int32_t>(threadIdx.x) * kEach;
    const uint4 four = next;
    next = orders_at(own + kThreads * kEach);
    const uint32_t order[kEach] = {four.x, four.y, four.z, four.w};
    int32_t mine = 0, total;
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine += own + i < last && order[i] >> kFirstShift >= digit;
    int32_t at = listed + sum_before(mine, shared.warp_sums, total);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (own + i < last && order[i] >> kFirstShift >= digit) {
        orders[at] = order[i];
        indices[at++] = static_cast<uint32_t>(source.index(own + i));
      }
    }
    listed += total;
  }
  __syncthreads();
  return listed;
}

template <class Source>
__device__ void choose_all(const Source& source, int32_t k, int32_t* out) {
  for (int32_t i = threadIdx.x; i < k; i += kThreads)
    out[i] = i < source.count ? source.index(i) : -1;
}

__device__ Entries entries_of(const IndexPool& pool, int32_t t) {
  const int32_t visible = pool.visible(t);
  if (pool.candidates == nullptr) return {pool.scores_of(t), visible, nullptr, 1};
  // Blocks ascend, so that those that hold visible entries come first, and only the last of them
  // can reach past the visible ones.
  const int32_t* blocks = pool.blocks_of(t);
  const int32_t size = pool.candidate_block;
  int32_t used = 0;
  for (int32_t start = 0; start < pool.candidate_blocks; start += kThreads) {
    const int32_t i = start + static_cast<int32_t>(threadIdx.x);
    const bool use = i < pool.candidate_blocks && blocks[i] >= 0 && blocks[i] * size < visible;
    used += __syncthreads_count(use);
  }
  const int32_t last = used == 0 ? 0 : min(size, visible - blocks[used - 1] * size);
  return {pool.scores_of(t), used == 0 ? 0 : (used - 1) * size + last, blocks, size};
}
__device__ Blocks blocks_of(const IndexPool& pool, int32_t t) {
  const int32_t visible = pool.visible(t), size = pool.candidate_block;
  return {pool.scores_of(t), (visible + size - 1) / size, visible, size};
}

// Calls with the source, k and the place of the block's task.
template <class Use>
__device__ void with_task(const Selection& of, int32_t t, int task, Use use) {
  if (task == 0) {
    use(entries_of(of.pool, t), of.most_chosen,
        of.chosen + static_cast<int64_t>(t) * of.most_chosen);
  } else {
    use(blocks_of(of.pool, t), of.most_built, of.built + static_cast<int64_t>(t) * of.most_built);
  }
}

// The part of `count` things that block x of gridDim.x reads: whole turns of list_best.
__device__ int2 part_of(int32_t count) {
  constexpr int32_t kTurn = 4 * kThreads;
  const auto parts = static_cast<int32_t>(gridDim.x);
  const int32_t each = ((count + kTurn - 1) / kTurn + parts - 1) / parts * kTurn;
  const int32_t first = min(static_cast<int32_t>(blockIdx.x) * each, count);
  return {first, min(first + each, count)};
}

// blockIdx.x: a part of a row's scores, all of which are a cluster; y: a row of the chunk; z: a
// task. `capacity`: of the list; `room`: entries of its part that a block can keep.
__global__ void __launch_bounds__(kThreads)
    select_kernel(Selection of, int32_t capacity, int32_t room) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint32_t* orders = shared.memory();
  uint32_t* indices = orders + capacity;
  uint32_t* keep = indices + capacity;
  const auto cluster = cooperative::this_cluster();
  const auto parts = static_cast<int32_t>(gridDim.x), rank = static_cast<int32_t>(blockIdx.x);
  for (int i = threadIdx.x; i < kDigits; i += kThreads) shared.totals[i] = 0;
  clear(shared);
  auto cleared = cluster.barrier_arrive();
  wait_for_inputs();
  let_next_start();
  const int32_t t = of.pool.first + static_cast<int32_t>(blockIdx.y);
  with_task(of, t, static_cast<int>(blockIdx.z), [&](auto source, int32_t k, int32_t* out) {
    if (source.count <= k) {
      if (rank == 0) choose_all(source, k, out);
      cluster.barrier_wait(std::move(cleared));
      return;
    }
    const int2 part = part_of(source.count);
    const bool kept = part.y - part.x <= room;
    constexpr int32_t kTurn = 4 * kThreads, kAhead = 4;  // loads in flight
    for (int32_t start = part.x + 4 * static_cast<int32_t>(threadIdx.x); start < part.y;
         start += kAhead * kTurn) {
      uint4 ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (start + j * kTurn < part.y) ahead[j] = source.orders(start + j * kTurn);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int32_t left = part.y - (start + j * kTurn);
        if (left <= 0) break;
        if (kept) *reinterpret_cast<uint4*>(keep + (start + j * kTurn - part.x)) = ahead[j];
        atomicAdd(&shared.counts[ahead[j].x >> kFirstShift], 1);
        if (left > 1) atomicAdd(&shared.counts[ahead[j].y >> kFirstShift], 1);
        if (left > 2) atomicAdd(&shared.counts[ahead[j].z >> kFirstShift], 1);
        if (left > 3) atomicAdd(&shared.counts[ahead[j].w >> kFirstShift], 1);
      }
    }
    __syncthreads();
    cluster.barrier_wait(std::move(cleared));
    if (parts > 1) {
      // Of the digits few occur: each block adds its own to everybody's totals.
      for (int32_t i = threadIdx.x; i < kDigits; i += kThreads) {
        const int32_t own = shared.counts[i];
        if (own == 0) continue;
        for (int32_t other = 0; other < parts; ++other) {
          atomicAdd(cluster.map_shared_rank(&shared.totals[i], other), own);
        }
      }
      cluster.sync();
    }
    const int32_t* counts = parts > 1 ? shared.totals : shared.counts;
    find_digit([&](int32_t i) { return counts[i]; }, k, shared);
    const auto digit = static_cast<uint32_t>(shared.digit);
    const int32_t above = shared.above;
    if (above + shared.equal > capacity) {
      if (rank == 0) finish(source, k, digit, above, out, shared);
      return;
    }
    const int32_t listed = kept ? list_best(Kept<decltype(source)>{source, keep, part.x}, part.x,
                                            part.y, digit, orders, indices, shared)
                                : list_best(source, part.x, part.y, digit, orders, indices, shared);
    if (threadIdx.x == 0) shared.listed = listed;
    cluster.sync();
    int32_t all = listed;
    if (rank == 0) {
      for (int32_t other = 1; other < parts; ++other) {
        const int32_t more = *cluster.map_shared_rank(&shared.listed, other);
        const uint32_t* their_orders = cluster.map_shared_rank(orders, other);
        const uint32_t* their_indices = cluster.map_shared_rank(indices, other);
        for (int32_t i = threadIdx.x; i < more; i += kThreads) {
          orders[all + i] = their_orders[i];
          indices[all + i] = their_indices[i];
        }
        all += more;
      }
    }
    cluster.sync();  // before the others end
    if (rank == 0) finish(List{orders, indices, all}, k, digit, above, out, shared);
  });
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
