// Radix selection: the leading 12 bits of all scores are counted; the few that are at least as
// large as the bits of the k-th are listed in order; among them the other 20 bits decide. Where the
// list does not fit, the same runs over all scores.
#include "backend/cuda/indexer_selection.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// Larger for larger numbers; 0 for none.
__device__ inline uint32_t order_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// Shared by the steps of a selection; the list follows.
struct Shared {
  int32_t counts[kDigits];
  int32_t warp_sums[kWarps];
  int32_t digit, above;
  bool last;

  __device__ uint32_t* lists() { return reinterpret_cast<uint32_t*>(this + 1); }
};
static_assert(sizeof(Shared) % 4 == 0);

__device__ inline Shared& shared_memory() {
  extern __shared__ __align__(16) uint8_t memory[];
  return *reinterpret_cast<Shared*>(memory);
}

// What is chosen from: order(i) and index(i) of 0 <= i < count, ascending.
struct Entries {
  const float* scores;
  int32_t count;
  const int32_t* blocks;  // the pool's candidates, or nullptr
  int32_t block_size;

  __device__ uint32_t order(int32_t i) const { return order_of(scores[i]); }
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
  __device__ int32_t index(int32_t i) const { return i; }
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

__device__ inline void clear(Shared& shared, int digits) {
  for (int i = threadIdx.x; i < digits; i += kThreads) shared.counts[i] = 0;
  __syncthreads();
}

// Counts (order >> shift) of what begins, above its `known` bits, like `prefix`.
template <class Source>
__device__ void count(const Source& source, int32_t first, int32_t last, uint32_t prefix,
                      int known_shift, int shift, uint32_t mask, Shared& shared) {
#pragma unroll 4
  for (int32_t i = first + static_cast<int32_t>(threadIdx.x); i < last; i += kThreads) {
    const uint32_t order = source.order(i);
    if (known_shift == 32 || order >> known_shift == prefix) {
      atomicAdd(&shared.counts[order >> shift & mask], 1);
    }
  }
  __syncthreads();
}

// The digit of the k-th largest, and how many are above that digit.
template <int digits>
__device__ void find_digit(const int32_t* counts, int32_t k, Shared& shared) {
  constexpr int kEach = digits / kThreads > 0 ? digits / kThreads : 1;
  const int32_t top = digits - 1 - static_cast<int32_t>(threadIdx.x) * kEach;
  int32_t own[kEach], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    own[i] = top - i >= 0 ? counts[top - i] : 0;
    sum += own[i];
  }
  int32_t above = sum_before(sum, shared.warp_sums, total);
  if (above < k && k <= above + sum) {
    for (int i = 0; i < kEach; ++i) {
      if (k <= above + own[i]) {
        shared.digit = top - i;
        shared.above = above;
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
  __syncthreads();
  clear(shared, kDigits);
  count(source, 0, source.count, digit, 20, 8, 0xFFFu, shared);
  find_digit<kDigits>(shared.counts, k - above, shared);
  const uint32_t prefix = digit << 12 | static_cast<uint32_t>(shared.digit);
  above += shared.above;
  __syncthreads();
  clear(shared, 256);
  count(source, 0, source.count, prefix, 8, 0, 0xFFu, shared);
  find_digit<256>(shared.counts, k - above, shared);
  above += shared.above;
  emit(source, prefix << 8 | static_cast<uint32_t>(shared.digit), k - above, out, shared);
}

// Entries first .. last - 1 whose leading bits are at least `digit`, in order, to a list that they
// fit into; returns how many.
template <class Source>
__device__ int32_t list_best(const Source& source, int32_t first, int32_t last, uint32_t digit,
                             uint32_t* orders, uint32_t* indices, Shared& shared) {
  constexpr int kEach = 4;
  int32_t listed = 0;
  for (int32_t start = first; start < last; start += kThreads * kEach) {
    const int32_t own = start + static_cast<int32_t>(threadIdx.x) * kEach;
    uint32_t order[kEach];
    int32_t mine = 0, total;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      order[i] = own + i < last ? source.order(own + i) : 0;
      mine += own + i < last && order[i] >> 20 >= digit;
    }
    int32_t at = listed + sum_before(mine, shared.warp_sums, total);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (own + i < last && order[i] >> 20 >= digit) {
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

// blockIdx.x: a row of the chunk, blockIdx.y: a task.
__global__ void __launch_bounds__(kThreads) select_kernel(Selection of) {
  Shared& shared = shared_memory();
  uint32_t* lists = shared.lists();  // [2, capacity]
  wait_for_inputs();
  let_next_start();
  const int32_t t = of.pool.first + static_cast<int32_t>(blockIdx.x);
  with_task(of, t, static_cast<int>(blockIdx.y), [&](auto source, int32_t k, int32_t* out) {
    if (source.count <= k) return choose_all(source, k, out);
    clear(shared, kDigits);
    count(source, 0, source.count, 0, 32, 20, 0xFFFu, shared);
    find_digit<kDigits>(shared.counts, k, shared);
    const auto digit = static_cast<uint32_t>(shared.digit);
    const int32_t above = shared.above;
    if (above + shared.counts[digit] > of.scratch.capacity) {
      return finish(source, k, digit, above, out, shared);
    }
    uint32_t* indices = lists + of.scratch.capacity;
    const int32_t listed = list_best(source, 0, source.count, digit, lists, indices, shared);
    finish(List{lists, indices, listed}, k, digit, above, out, shared);
  });
}

// The part of `count` things that block x of gridDim.x reads: whole turns of list_best.
__device__ int2 part_of(int32_t count) {
  constexpr int32_t kTurn = 4 * kThreads;
  const auto parts = static_cast<int32_t>(gridDim.x);
  const int32_t each = ((count + kTurn - 1) / kTurn + parts - 1) / parts * kTurn;
  const int32_t first = min(static_cast<int32_t>(blockIdx.x) * each, count);
  return {first, min(first + each, count)};
}

// Both kernels: blockIdx.x: a part of a row's scores, y: a row of the chunk, z: a task.
__global__ void __launch_bounds__(kThreads) count_kernel(Selection of) {
  Shared& shared = shared_memory();
  wait_for_inputs();
  let_next_start();
  const int32_t t = of.pool.first + static_cast<int32_t>(blockIdx.y);
  with_task(of, t, static_cast<int>(blockIdx.z), [&](auto source, int32_t k, int32_t*) {
    const int2 part = part_of(source.count);
    if (source.count <= k || part.x == part.y) return;
    clear(shared, kDigits);
    count(source, part.x, part.y, 0, 32, 20, 0xFFFu, shared);
    int32_t* counts =
        of.scratch.counts + (static_cast<int64_t>(t) * gridDim.z + blockIdx.z) * kDigits;
    for (int i = threadIdx.x; i < kDigits; i += kThreads) {
      if (shared.counts[i] != 0) atomicAdd(&counts[i], shared.counts[i]);
    }
  });
}

__global__ void __launch_bounds__(kThreads) split_select_kernel(Selection of) {
  Shared& shared = shared_memory();
  uint32_t* lists = shared.lists();  // [2, capacity]
  wait_for_inputs();
  let_next_start();
  const int32_t t = of.pool.first + static_cast<int32_t>(blockIdx.y);
  const int64_t place = static_cast<int64_t>(blockIdx.y) * gridDim.z + blockIdx.z;
  with_task(of, t, static_cast<int>(blockIdx.z), [&](auto source, int32_t k, int32_t* out) {
    if (source.count <= k) {
      if (blockIdx.x == 0) choose_all(source, k, out);
      return;
    }
    const int32_t* counts =
        of.scratch.counts + (static_cast<int64_t>(t) * gridDim.z + blockIdx.z) * kDigits;
    find_digit<kDigits>(counts, k, shared);
    const auto digit = static_cast<uint32_t>(shared.digit);
    const int32_t above = shared.above, capacity = of.scratch.capacity;
    const bool fits = above + counts[digit] <= capacity;
    const auto parts = static_cast<int32_t>(gridDim.x);
    uint32_t* global = of.scratch.lists + place * parts * 2 * capacity;
    int32_t* listed = of.scratch.listed + place * parts;
    if (fits) {
      const int2 part = part_of(source.count);
      uint32_t* mine = global + static_cast<int64_t>(blockIdx.x) * 2 * capacity;
      const int32_t found = list_best(source, part.x, part.y, digit, mine, mine + capacity, shared);
      if (threadIdx.x == 0) listed[blockIdx.x] = found;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.last = atomicAdd(&of.scratch.arrivals[place], 1) == parts - 1;
      if (shared.last) of.scratch.arrivals[place] = 0;
    }
    __syncthreads();
    if (!shared.last) return;
    __threadfence();
    if (!fits) return finish(source, k, digit, above, out, shared);
    // A warp a part: all lists after one another, in order.
    const int32_t lane = threadIdx.x % 32;
    int32_t before = 0;
    for (int32_t part = 0; part < parts; ++part) {
      const int32_t found = __ldcg(&listed[part]);
      if (part % kWarps == static_cast<int32_t>(threadIdx.x) / 32) {
        const uint32_t* from = global + static_cast<int64_t>(part) * 2 * capacity;
        for (int32_t i = lane; i < found; i += 32) {
          lists[before + i] = __ldcg(&from[i]);
          lists[capacity + before + i] = __ldcg(&from[capacity + i]);
        }
      }
      before += found;
    }
    __syncthreads();
    finish(List{lists, lists + capacity, before}, k, digit, above, out, shared);
  });
}

}  // namespace

void select_best(Queue& queue, const Selection& selection, const IndexerPlan& plan) {
  const auto rows = static_cast<unsigned>(selection.pool.count);
  const auto tasks = static_cast<unsigned>(selection.tasks());
  const size_t shared_bytes =
      sizeof(Shared) + static_cast<size_t>(plan.list_capacity) * 2 * sizeof(uint32_t);
  if (plan.select_splits == 1) {
    launch(queue, "index_select", select_kernel,
           {.blocks = {rows, tasks}, .threads = kThreads, .shared_bytes = shared_bytes}, selection);
    return;
  }
  const dim3 blocks{static_cast<unsigned>(plan.select_splits), rows, tasks};
  launch(queue, "index_select", count_kernel,
         {.blocks = blocks, .threads = kThreads, .shared_bytes = sizeof(Shared)}, selection);
  launch(queue, "index_select", split_select_kernel,
         {.blocks = blocks, .threads = kThreads, .shared_bytes = shared_bytes}, selection);
}

}  // namespace cachalot::cuda
