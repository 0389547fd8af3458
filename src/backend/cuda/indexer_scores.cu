// The fast scores: FP8 tensor cores, 32 heads of 128 channels. docs/kernels/index_select.md
//
// A group of 32 channels is one product of FP4 numbers, in E5M2: 32 multiples of a quarter, at most
// 36 each, so that its sum is exact even in the 14 bits FP8 products are added with. Groups are
// then scaled and added in FP32, in order.
#include "backend/cuda/block_formats.h"
#include "backend/cuda/indexer_query.cuh"
#include "backend/cuda/indexer_scores.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/computed_once.h"
#include "backend/cuda/ptx/wgmma_e5m2.h"

namespace cachalot::cuda {
namespace {

constexpr int kGroups = 4;                     // warpgroups of a block that multiply, and
constexpr int kThreads = 128 * kGroups + 128;  // one whose warps each copy for one of them
constexpr int kStages = 3;                     // tiles of keys, of each
// Registers of a thread; at the start all have the same, and there will be no more of them.
constexpr int kStart = 65536 / kThreads / 8 * 8, kCopying = 32;
constexpr int kMultiplying = (kThreads * kStart - 128 * kCopying) / (128 * kGroups) / 8 * 8;
constexpr int kTile = static_cast<int>(kScoreTile), kHalf = kTile / 2;  // a product's keys
constexpr int kRowBytes = 68, kTileBytes = kRowBytes * kTile, kHalfBytes = kRowBytes * kHalf;
constexpr int kRows = static_cast<int>(kScoreRows);
constexpr int kBlockEntries = 8;  // of a candidate block

// Neighbouring rows of one sequence, which share its keys.
struct Run {
  int32_t first_row, end_row;    // of the block's
  int32_t first_tile, end_tile;  // tiles of all runs are numbered through
  int32_t entries, slot;
};

struct SharedMemory {
  alignas(1024) uint8_t queries[kRows][kTensorQueryBytes];
  alignas(128) uint8_t keys[kStages][kGroups][kTileBytes];
  TensorQueryScales scales[kRows];
  QueryTurns turns[kRows];
  Barrier queries_ready;
  Barrier full[kStages][kGroups], empty[kStages][kGroups];
  Run runs[kRows];
  int32_t shares[kGroups + 1];  // a warpgroup's tiles begin here and end where the next one's do
  bool apart;                   // no two rows are of one sequence
  bool wide;                    // of queries made here
};

// Finds the runs of the block's rows and what of their tiles is whose; by one warp. A tile costs as
// much as its rows and about one more for expanding it.
template <bool kCandidates>
__device__ void find_runs(const IndexPool& pool, int32_t first_row, int32_t rows,
                          SharedMemory& shared) {
  const int32_t lane = threadIdx.x % 32, t = first_row + min(lane, rows - 1);
  const int32_t sequence = pool.rows.first_rows[t], visible = pool.visible(t),
                slot = pool.rows.slots[t];
  const int32_t before = __shfl_up_sync(~0u, sequence, 1);
  const bool begins = lane < rows && (lane == 0 || sequence != before);
  const uint32_t sequences = __ballot_sync(~0u, begins);
  const bool starts = kCandidates ? lane < rows : begins;
  const uint32_t all = __ballot_sync(~0u, starts), next = all & ~0u << lane << 1;
  const int32_t end_row = next == 0 ? rows : __ffs(next) - 1;
  // Positions ascend in a run: its last row sees most.
  int32_t most = __shfl_sync(~0u, visible, end_row - 1);
  if (kCandidates) {
    most = min((most + kBlockEntries - 1) / kBlockEntries, pool.candidate_blocks) * kBlockEntries;
  }
  const int32_t each = end_row - lane + 1;
  const int32_t tiles = starts && most > pool.unscored ? (most + kTile - 1) / kTile : 0;
  int32_t end_tile = tiles, end_cost = tiles * each;
#pragma unroll
  for (int distance = 1; distance < kRows; distance *= 2) {
    const int32_t other_tile = __shfl_up_sync(~0u, end_tile, distance);
    const int32_t other_cost = __shfl_up_sync(~0u, end_cost, distance);
    if (lane >= distance) end_tile += other_tile, end_cost += other_cost;
  }
  const int32_t first_tile = end_tile - tiles, first_cost = end_cost - tiles * each;
  if (starts) {
    shared.runs[__popc(all & ~(~0u << lane))] = {lane, end_row, first_tile, end_tile, most, slot};
  }
  const int32_t all_tiles = __shfl_sync(~0u, end_tile, kRows - 1);
  const int32_t cost = __shfl_sync(~0u, end_cost, kRows - 1);
  // Lane p finds where share p of the block begins; without a division of 64 bits, which is long.
  const int32_t parts = static_cast<int32_t>(gridDim.x) * kGroups;
  const int32_t part = static_cast<int32_t>(blockIdx.x) * kGroups + min(lane, kGroups);
  const int32_t at = cost / parts * part + cost % parts * part / parts;
  int32_t of_tile = all_tiles, of_cost = at, of_each = 1;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int32_t begin = __shfl_sync(~0u, first_cost, r), end = __shfl_sync(~0u, end_cost, r);
    const int32_t tile = __shfl_sync(~0u, first_tile, r), rows_and_one = __shfl_sync(~0u, each, r);
    if (begin <= at && at < end) of_tile = tile, of_cost = begin, of_each = rows_and_one;
  }
  const int32_t share = of_tile + (at - of_cost + of_each - 1) / of_each;
  if (lane <= kGroups) shared.shares[lane] = share;
  if (lane == 0) shared.apart = __popc(sequences) == rows;
}

// A tile is copied in pieces: halves, or candidate blocks.
template <bool kCandidates>
constexpr int32_t kPieces = kCandidates ? kTile / kBlockEntries : 2;

// Where lane `lane` of the copying warp finds its piece of the tiles from `tile` on. Behind a run's
// end any keys will do: nobody reads their scores.
template <bool kCandidates>
__device__ const uint8_t* find_keys(const IndexPool& pool, int32_t first_row, int32_t tile,
                                    int32_t end, const SharedMemory& shared) {
  constexpr int32_t kOwn = kPieces<kCandidates>;
  const int32_t lane = threadIdx.x % 32;
  tile += lane / kOwn;
  if (tile >= end) return nullptr;
  int32_t run = 0;
  while (tile >= shared.runs[run].end_tile) ++run;
  const Run& of = shared.runs[run];
  int32_t entry = (tile - of.first_tile) * kTile + lane % kOwn * (kTile / kOwn);
  if (entry >= of.entries) entry = 0;
  if constexpr (kCandidates) {
    entry = max(pool.blocks_of(first_row + of.first_row)[entry / kBlockEntries], 0) * kBlockEntries;
  }
  const int32_t page_shift = __ffs(pool.keys.rows_per_page) - 1;
  const int32_t page =
      pool.keys
          .table[static_cast<int64_t>(of.slot) * pool.keys.pages_per_slot + (entry >> page_shift)];
  const int32_t row = entry & (pool.keys.rows_per_page - 1);
  return pool.keys.rows + (static_cast<int64_t>(page) * pool.keys.rows_per_page + row) * kRowBytes;
}

// Copies the keys of a warpgroup's tiles to its stages, as these are emptied; a warp. Places of 32
// pieces are looked up ahead.
template <bool kCandidates, bool kMakes>
__device__ void copy_keys(const IndexPool& pool, int32_t first_row, int32_t group,
                          SharedMemory& shared) {
  constexpr int32_t kOwn = kPieces<kCandidates>, kAhead = 32 / kOwn;  // tiles
  const int32_t lane = threadIdx.x % 32, end = shared.shares[group + 1];
  int32_t tile = shared.shares[group], stage = 0;
  uint32_t parity = 1;  // stages begin empty
  // What no other row reads need not stay in L2.
  const CacheHint hint = shared.apart ? CacheHint::evict_first : CacheHint::evict_normal;
  // Candidates and keys may be what the kernel before this one writes, if that is not the queries'.
  if (kMakes && kCandidates) wait_for_inputs();
  const uint8_t* next = find_keys<kCandidates>(pool, first_row, tile, end, shared);
  if (kMakes && !kCandidates) wait_for_inputs();
  while (tile < end) {
    const uint8_t* from = next;
    next = find_keys<kCandidates>(pool, first_row, tile + kAhead, end, shared);
    const int32_t count = min(kAhead, end - tile);
#pragma unroll 1
    for (int32_t i = 0; i < count; ++i) {
      Barrier* full = &shared.full[stage][group];
      barrier_wait(&shared.empty[stage][group], parity);
      if (lane == 0) barrier_expect(full, kTileBytes);
      __syncwarp();
      if (lane / kOwn == i) {
        constexpr int32_t kBytes = kTileBytes / kOwn;
        copy_bulk(shared.keys[stage][group] + lane % kOwn * kBytes, from, kBytes, full, hint);
      }
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    tile += count;
  }
}

// Powers of two, parameters of the kernel because the compiler makes shifts of products with
// numbers it knows: of units that shift there are half as many as instructions are started, and
// those that multiply are idle.
struct Powers {
  uint32_t one = 1u << 1, four = 1u << 4, seven = 1u << 7, fifteen = 1u << 15;
  uint32_t twenty_three = 1u << 23;
};

// One instruction of three operands, which the compiler makes two of where some bits are known.
template <int kTable>
__device__ inline uint32_t combined(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
// Bits of `a` where `mask` has ones, of `b` elsewhere.
__device__ inline uint32_t merged(uint32_t mask, uint32_t a, uint32_t b) {
  constexpr int kA = 0xF0, kB = 0xCC, kMask = 0xAA;
  return combined<(kA & kMask) | (kB & ~kMask & 0xFF)>(a, b, mask);
}

// Eight E2M1 numbers in E5M2, times 2^-14: the low nibbles, then the high ones. Their exponent and
// mantissa bits become the lowest exponent bits and the highest mantissa bit; denormals match.
__device__ inline void expand(uint32_t word, const Powers& powers, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kMagnitudes = 0x0E0E0E0Eu;
  const uint32_t signs = word & 0x88888888u;
  low = merged(kMagnitudes, word * powers.one, signs * powers.four);
  high = merged(kMagnitudes, word >> 3, signs);
}

// Rows `row` and row + 8 of half a tile of keys, as this thread holds them.
struct Keys {
  uint32_t codes[kTensorGroups][4];
  float ratios[2][kTensorGroups - 1];  // of groups 1 .. 3
  float scale;                         // of the first group of key row + 8 * (lane % 2)
  uint32_t exponents[2];               // E8M0 codes of the groups
  bool apart;                          // ratios of some of the warp's keys are too large or tiny

  // `row`: where the first lies.
  __device__ void load(const uint8_t* row, int32_t lane, const Powers& powers) {
    uint32_t fields[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* words = reinterpret_cast<const uint32_t*>(row + 8 * half * kRowBytes);
#pragma unroll
      for (int g = 0; g < kTensorGroups; ++g) {
        expand(words[4 * g + lane % 4], powers, codes[g][half], codes[g][2 + half]);
      }
      exponents[half] = words[16];
      // Bytes 1 .. 3: the exponent field of a group's ratio. Of a ratio of at most 1 it begins with
      // zero, of one that is not tiny with a one then.
      fields[half] = exponents[half] + static_cast<uint32_t>(127 - kKeyRoom) * 0x01010100u -
                     __byte_perm(exponents[half], 0, 0x0004);
      ratios[half][0] = __uint_as_float(fields[half] * powers.fifteen & 0x7F800000u);
      ratios[half][1] = __uint_as_float(fields[half] * powers.seven & 0x7F800000u);
      ratios[half][2] = __uint_as_float(fields[half] >> 1 & 0x7F800000u);
      // Once per tile: the compiler would rather do it again for every row of the step.
#pragma unroll
      for (int g = 0; g < kTensorGroups - 1; ++g) computed_once(ratios[half][g]);
    }
    const uint32_t own = lane % 2 != 0 ? exponents[1] : exponents[0];
    const uint32_t bits = own * powers.twenty_three & 0x7F800000u;
    scale = __uint_as_float(bits);
    computed_once(scale);
    constexpr int kA = 0xF0, kB = 0xCC, kTop = 0xAA;
    const uint32_t wrong = combined<(kTop & (kA | kB)) | (~kTop & ~(kA & kB) & 0xFF)>(
        fields[0], fields[1], 0x80808080u);
    // Ratios so tiny that their field looks right belong to scales above 2^120 alone.
    apart = __any_sync(~0u, (wrong & 0xC0C0C000u) != 0 || bits > 247u << 23);
  }
};

// Descriptors of queries differ in their lower words alone: 16-byte units of the address.
__device__ inline uint64_t query_descriptor(uint32_t lower) {
  constexpr uint32_t kUpper = static_cast<uint32_t>(SharedLayout::swizzle_128) << 30 | 1024 >> 4;
  return static_cast<uint64_t>(kUpper) << 32 | lower;
}

// Starts the products of the keys with one row's query, at `columns` of shared memory.
__device__ inline void start_products(float (&dots)[kTensorGroups][16], const Keys& keys,
                                      uint32_t columns) {
  wgmma_fence();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) {
    wgmma_e5m2(dots[g], keys.codes[g], query_descriptor(columns + 32 * g / 16));
  }
  wgmma_commit();
}

// d = min(max(a * b + c, 0), 1)
__device__ inline float saturated_fma(float a, float b, float c) {
  float d;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// Adds this thread's heads for both its keys. As no dot reaches 1, rectifying it costs nothing.
__device__ inline void add_heads(float (&dots)[kTensorGroups][16], const Keys& keys,
                                 const float (&weights)[8], float (&sums)[2]) {
#pragma unroll
  for (int head = 0; head < 8; ++head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = head / 2 * 4 + half * 2 + head % 2;
      float dot = fmaf(dots[1][i], keys.ratios[half][0], dots[0][i]);
      dot = fmaf(dots[2][i], keys.ratios[half][1], dot);
      dot = saturated_fma(dots[3][i], keys.ratios[half][2], dot);
      sums[half] = fmaf(weights[head], dot, sums[half]);
    }
  }
}

// The same for keys of any scales, with these in place of ratios and of the scale of the first
// group. E8M0 codes of 0 and 255, which no quantizer writes here, become 0 and infinity.
__device__ inline void add_heads_apart(float (&dots)[kTensorGroups][16], const Keys& keys,
                                       const float (&weights)[8], float (&sums)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float scales[kTensorGroups];
#pragma unroll
    for (int g = 0; g < kTensorGroups; ++g) {
      scales[g] = __uint_as_float((keys.exponents[half] >> (8 * g) & 0xFFu) << 23);
    }
    scales[0] *= static_cast<float>(1 << kKeyRoom);
#pragma unroll
    for (int head = 0; head < 8; ++head) {
      const int i = head / 2 * 4 + half * 2 + head % 2;
      float dot = dots[0][i] * scales[0];
#pragma unroll
      for (int g = 1; g < kTensorGroups; ++g) dot = fmaf(dots[g][i], scales[g], dot);
      sums[half] = fmaf(weights[head], fmaxf(dot, 0.0f), sums[half]);
    }
    sums[half] *= 1.0f / (1 << kKeyRoom);
  }
}

// The weights of eight heads from `weight` on.
__device__ inline void load_weights(const float* weight, float (&weights)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(weight + i);
    weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z, weights[i + 3] = four.w;
  }
}

// Waits for the products. The score of key row + 8 * (lane % 2), the same in two lanes. `scales`:
// of a `kWide` query, of the thread's first head.
template <bool kWide>
__device__ inline float score(float (&dots)[kTensorGroups][16], const Keys& keys,
                              const float (&weights)[8], const float* scales, int32_t lane) {
  wgmma_wait<0>();
#pragma unroll
  for (int g = 0; g < kTensorGroups; ++g) wgmma_hold(dots[g]);
  if (kWide) {
#pragma unroll
    for (int g = 0; g < kTensorGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 16; ++i) dots[g][i] *= scales[g * kTensorHeads + i / 4 * 2 + i % 2];
    }
  }
  float sums[2] = {0, 0}, scale = keys.scale;
  if (keys.apart) {
    add_heads_apart(dots, keys, weights, sums);
    scale = 1;
  } else {
    add_heads(dots, keys, weights, sums);
  }
  // Heads 0..7 and 8..15, then 16..23 and 24..31, then the two sums.
  const bool odd = lane % 2 != 0;
  float sum = odd ? sums[1] : sums[0];
  sum += __shfl_xor_sync(~0u, odd ? sums[0] : sums[1], 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum * scale;
}

// All lanes have the same, which the compiler does not know and is told here.
__device__ inline int32_t uniform(int32_t value) { return __shfl_sync(~0u, value, 0); }

// Scores the tiles of the block that are this warpgroup's.
// `kApart`: every row is a run.
template <bool kWide, bool kApart>
__device__ inline void score_tiles(const IndexPool& pool, int32_t first_row, const Powers& powers,
                                   SharedMemory& shared) {
  const int32_t group = uniform(threadIdx.x / 128), warp = threadIdx.x % 128 / 32;
  int32_t lane = threadIdx.x % 32;
  int32_t own_keys = (16 * warp + lane / 4) * kRowBytes;  // of a stage
  // Registers are few, but the compiler may not save these: working them out again costs more.
  computed_once(lane);
  computed_once(own_keys);
  const auto columns =
      static_cast<uint32_t>(shared_descriptor(shared.queries, SharedLayout::swizzle_128, 1024));
  // Where the thread's first score of the first row and a first tile would go. Places are counted
  // in 32 bits to save a register: a chunk's scores are fewer.
  const auto stride = static_cast<uint32_t>(pool.stride);
  const uint32_t own_scores = static_cast<uint32_t>(first_row - pool.first) * stride +
                              static_cast<uint32_t>(16 * warp + 8 * (lane % 2) + lane / 4);
  const int32_t end = uniform(shared.shares[group + 1]);
  int32_t stage = group;  // of all groups
  uint32_t parity = 0;
  const auto wait_for_keys = [&] {
    barrier_wait(&shared.full[0][0] + stage, parity);
    return &shared.keys[0][0][0] + stage * kTileBytes + own_keys;
  };
  const auto release_keys = [&] {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[0][0] + stage);
    stage += kGroups;
    if (stage >= kStages * kGroups) stage -= kStages * kGroups, parity ^= 1;
  };
  const Run* run = shared.runs;
  for (int32_t tile = uniform(shared.shares[group]); tile < end; ++run) {
    const int32_t run_end = min(uniform(run->end_tile), end);
    if (tile >= run_end) continue;
    const int32_t first = uniform(run->first_row), rows = uniform(run->end_row) - first;
    const float* const run_weights = shared.scales[first].weight + lane % 4 * 8;
    const uint32_t run_columns = columns + static_cast<uint32_t>(first) * (kTensorQueryBytes / 16);
    uint32_t to = own_scores + static_cast<uint32_t>(first) * stride +
                  static_cast<uint32_t>((tile - run->first_tile) * kTile);
    if (kApart || rows == 1) {
      float weights[8];
      load_weights(run_weights, weights);
#pragma unroll 1
      for (; tile < run_end; ++tile) {
        const uint8_t* from = wait_for_keys();
        float dots[kTensorGroups][16];
        Keys low, high;
        low.load(from, lane, powers);
        start_products(dots, low, run_columns);
        pool.scores[to] = score<kWide>(dots, low, weights, run_weights + kTensorHeads, lane);
        high.load(from + kHalfBytes, lane, powers);
        release_keys();
        start_products(dots, high, run_columns);
        pool.scores[to + kHalf] =
            score<kWide>(dots, high, weights, run_weights + kTensorHeads, lane);
        to += kTile;
      }
      continue;
    }
    if constexpr (!kApart) {
#pragma unroll 1
      for (; tile < run_end; ++tile) {
        const uint8_t* from = wait_for_keys();
#pragma unroll 1
        for (int32_t half = 0; half < 2; ++half) {
          Keys keys;
          keys.load(from + half * kHalfBytes, lane, powers);
          if (half == 1) release_keys();
          uint32_t row_to = to;
          const float* row_weights = run_weights;
          uint32_t row_columns = run_columns;
#pragma unroll 1
          for (int32_t left = rows; left > 0; --left) {
            float dots[kTensorGroups][16], weights[8];
            start_products(dots, keys, row_columns);
            load_weights(row_weights, weights);
            pool.scores[row_to] =
                score<kWide>(dots, keys, weights, row_weights + kTensorHeads, lane);
            row_to += stride;
            row_weights += sizeof(TensorQueryScales) / 4;
            row_columns += kTensorQueryBytes / 16;
          }
          to += kHalf;
        }
      }
    }
  }
}

// The queries of the rows that the block has tiles of, each of its own sequence, by the warps that
// multiply. A function, so that its registers are no concern of the loops'.
__device__ __noinline__ void make_queries(const QueryMaking& of, int32_t first_row,
                                          SharedMemory& shared) {
  static_assert(kQueryThreads == 128 * kGroups);
  const int32_t begin = shared.shares[0], end = shared.shares[kGroups];
  bool wide = false;
  for (int32_t r = 0, tile = begin; tile < end; ++r) {
    const int32_t run_end = shared.runs[r].end_tile;
    if (run_end <= tile) continue;
    tile = run_end;
    wide |= make_query(of, first_row + r, shared.turns[r], shared.queries[r], shared.scales[r]);
  }
  if (threadIdx.x == 0) shared.wide = wide;
  fence_shared_for_async();
  sync_threads_of(1, kQueryThreads);
}

// blockIdx.y: kRows rows of the step; blockIdx.x: one of gridDim.x parts of their tiles. How many
// tiles there are the device alone knows.
template <bool kCandidates, bool kMakes>
__global__ void __launch_bounds__(kThreads, 1)
    tensor_scores_kernel(IndexPool pool, TensorQueries queries,
                         const __grid_constant__ QueryMaking making, Powers powers) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  const int32_t first_row = pool.first + static_cast<int32_t>(blockIdx.y) * kRows;
  const int32_t rows = min(kRows, pool.first + pool.count - first_row);
  // Behind queries keys, positions, tables and candidates are read before wait_for_inputs(): the
  // kernel before this one, queries or a selection, writes none of them, and lets this one start
  // after its own wait, when all kernels before it are done.
  if (threadIdx.x == 0) {
    barrier_init(&shared.queries_ready, 1);
    for (int g = 0; g < kGroups; ++g) {
      for (int s = 0; s < kStages; ++s) {
        barrier_init(&shared.full[s][g], 1);
        barrier_init(&shared.empty[s][g], 4);
      }
    }
    fence_barrier_init();
  }
  // Without candidates the selection reads nothing before it has waited.
  constexpr bool kNextAtOnce = kMakes && !kCandidates;
  if (kNextAtOnce) let_next_start();
  const int32_t warp = threadIdx.x / 32;
  if (warp == 4 * kGroups) find_runs<kCandidates>(pool, first_row, rows, shared);
  if (kMakes && warp < rows) find_turns(making, first_row + warp, shared.turns[warp]);
  __syncthreads();
  if (warp >= 4 * kGroups) {
    give_registers<kCopying>();
    const int32_t group = warp - 4 * kGroups;
    if (group < kGroups) copy_keys<kCandidates, kMakes>(pool, first_row, group, shared);
  } else {
    take_registers<kMultiplying>();
    wait_for_inputs();
    if (!kNextAtOnce) let_next_start();
    // As where every row chooses all it sees.
    if (shared.shares[0] == shared.shares[kGroups]) return;
    bool wide = false;
    if constexpr (kMakes) {
      make_queries(making, first_row, shared);
      wide = shared.wide;
    } else {
      if (threadIdx.x == 0) {
        barrier_expect(
            &shared.queries_ready,
            rows * (kTensorQueryBytes + static_cast<int32_t>(sizeof(TensorQueryScales))));
        copy_bulk(shared.queries,
                  queries.codes + static_cast<int64_t>(first_row) * kTensorQueryBytes,
                  rows * kTensorQueryBytes, &shared.queries_ready);
        copy_bulk(shared.scales, queries.scales + first_row,
                  rows * static_cast<int32_t>(sizeof(TensorQueryScales)), &shared.queries_ready);
      }
      __syncwarp();
      barrier_wait(&shared.queries_ready, 0);
      for (int32_t r = 0; r < rows; ++r) wide |= shared.scales[r].wide != 0;
    }
    if (wide) {
      score_tiles<true, kMakes>(pool, first_row, powers, shared);
    } else {
      score_tiles<false, kMakes>(pool, first_row, powers, shared);
    }
  }
}

template <bool kCandidates, bool kMakes>
void start(Queue& queue, const IndexPool& pool, const TensorQueries& queries,
           const QueryMaking& making, const IndexerPlan& plan) {
  const auto groups = static_cast<unsigned>((pool.count + kRows - 1) / kRows);
  launch(queue, "index_select", tensor_scores_kernel<kCandidates, kMakes>,
         {.blocks = {static_cast<unsigned>(plan.score_splits), groups},
          .threads = kThreads,
          .shared_bytes = sizeof(SharedMemory)},
         pool, queries, making, Powers{});
}

}  // namespace

void tensor_scores(Queue& queue, const IndexPool& pool, const TensorQueries& queries,
                   const IndexerPlan& plan) {
  const QueryMaking none{.rows = pool.rows};
  if (pool.candidates != nullptr) {
    start<true, false>(queue, pool, queries, none, plan);
  } else {
    start<false, false>(queue, pool, queries, none, plan);
  }
}

void tensor_scores(Queue& queue, const IndexPool& pool, const QueryMaking& making,
                   const IndexerPlan& plan) {
  if (pool.candidates != nullptr) {
    start<true, true>(queue, pool, {}, making, plan);
  } else {
    start<false, true>(queue, pool, {}, making, plan);
  }
}

}  // namespace cachalot::cuda
