// best_tokens, take_drafts.
//
// A row of logits is shared out to blocks, whose bests meet in the one that is last to arrive: the
// row lies in the L2 cache, since the head has just written it, and one block would take longer to
// read it than all of them take to agree.
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kLoads = 4;                     // of four logits, all on their way at once
constexpr int kPart = kThreads * kLoads * 4;  // logits a block looks at
constexpr int64_t kMostRows = 1 << 15;        // of a launch
static_assert(kMostRows <= Queue::kCounters);

constexpr uint64_t kUnusable = ~uint64_t{0};  // above every other key
constexpr uint32_t kOrderOfMinusInfinity = ~0xFF800000u;

// Orders by value, then lower ids first.
__device__ uint64_t key_of(float value, uint32_t id) {
  if (!(value < INFINITY)) return kUnusable;
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | (0xFFFFFFFFu - id);
}

__device__ int32_t id_of(uint64_t key) {
  if (key == kUnusable || key >> 32 == kOrderOfMinusInfinity) return -1;
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

__device__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

__device__ uint64_t largest_of_warp(uint64_t key) {
  for (int distance = 16; distance > 0; distance /= 2) {
    key = larger(key, __shfl_xor_sync(~0u, key, distance));
  }
  return key;
}

struct Rows {
  const float* logits;
  int64_t vocab;
  uint64_t* best_of_parts;  // [rows, parts]
  int32_t* done;            // [rows] parts that have written theirs
  int32_t* best;
};

// The largest key of a part, in thread 0. 0, the part has no logits, is below every key.
template <bool kAligned>
__device__ uint64_t best_of_part(const float* row, int64_t vocab) {
  __shared__ uint64_t of_warps[kWarps];
  const int64_t first = int64_t{blockIdx.x} * kPart;
  uint64_t best = 0;
  if constexpr (kAligned) {
    float4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t at = first + (i * kThreads + threadIdx.x) * 4;
      if (at < vocab) values[i] = *reinterpret_cast<const float4*>(row + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t at = first + (i * kThreads + threadIdx.x) * 4;
      if (at >= vocab) continue;
      const auto id = static_cast<uint32_t>(at);
      best = larger(best, larger(larger(key_of(values[i].x, id), key_of(values[i].y, id + 1)),
                                 larger(key_of(values[i].z, id + 2), key_of(values[i].w, id + 3))));
    }
  } else {
    for (int i = 0; i < kLoads * 4; ++i) {
      const int64_t at = first + i * kThreads + threadIdx.x;
      if (at < vocab) best = larger(best, key_of(row[at], static_cast<uint32_t>(at)));
    }
  }
  best = largest_of_warp(best);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (const uint64_t of_warp : of_warps) best = larger(best, of_warp);
  return best;
}

// Blocks: parts of a row, rows.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) choose_best(const Rows rows) {
  __shared__ bool is_last;
  let_next_start();
  wait_for_inputs();
  const int64_t row = blockIdx.y, parts = gridDim.x;
  const uint64_t best = best_of_part<kAligned>(rows.logits + row * rows.vocab, rows.vocab);
  if (threadIdx.x == 0) {
    rows.best_of_parts[row * parts + blockIdx.x] = best;
    __threadfence();
    is_last = atomicAdd(rows.done + row, 1) == parts - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x >= 32) return;
  __threadfence();
  uint64_t best_of_row = 0;
  for (int64_t part = threadIdx.x; part < parts; part += 32) {
    best_of_row = larger(best_of_row, __ldcg(rows.best_of_parts + row * parts + part));
  }
  best_of_row = largest_of_warp(best_of_row);
  if (threadIdx.x > 0) return;
  rows.best[row] = id_of(best_of_row);
  rows.done[row] = 0;
}

__global__ void __launch_bounds__(kThreads)
    take(const int32_t* given, const int32_t* places, const int32_t* drafts, int64_t tokens,
         int32_t* ids) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= tokens) return;
  const int32_t place = places[t];
  ids[t] = place < 0 ? given[t] : drafts[place];
}

}  // namespace

void best_tokens(Queue& queue, const BestTokensArgs& args) {
  check_shapes(args);
  const int64_t rows = args.logits.extent(0), vocab = args.logits.extent(1);
  const int64_t parts = (vocab + kPart - 1) / kPart;
  const bool aligned =
      vocab % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits.data) % sizeof(float4) == 0;
  Scratch scratch(queue);
  auto* best_of_parts = scratch.allocate<uint64_t>((rows < kMostRows ? rows : kMostRows) * parts);
  for (int64_t first = 0; first < rows; first += kMostRows) {
    const int64_t count = rows - first < kMostRows ? rows - first : kMostRows;
    launch(queue, "best_tokens", aligned ? choose_best<true> : choose_best<false>,
           {.blocks = {static_cast<unsigned>(parts), static_cast<unsigned>(count)},
            .threads = kThreads},
           Rows{.logits = args.logits.data + first * vocab,
                .vocab = vocab,
                .best_of_parts = best_of_parts,
                .done = queue.counters(),
                .best = args.best.data + first});
  }
}

void take_drafts(Queue& queue, const TakeDraftsArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.ids.extent(0);
  launch(queue, "take_drafts", take,
         {.blocks = dim3(static_cast<unsigned>((tokens + kThreads - 1) / kThreads)),
          .threads = kThreads},
         args.given.data, args.places.data, args.drafts.data, tokens, args.ids.data);
}

}  // namespace cachalot::cuda
