// markov_step, draft_confidence.
//
// markov_step reads the Markov head once for up to 32 sequences. A warp multiplies 16 rows of it
// with the features of eight sequences at a time by mma.sync, whose operands come straight from
// device memory: since a sum does not care which of its terms is called which, a lane takes eight
// neighbouring channels, one load of 16 bytes, as its four pairs of two products (lane's channels 8
// q .. 8 q + 7 of 32, q = lane % 4).
#include <cuda_bf16.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/mma_bf16.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

constexpr int kWarps = 8, kTileRows = 16, kColumns = 8;
constexpr int kChunk = 32;  // channels of two products

struct Link {
  int step, sequences, block, vocab, rank;
  const int32_t* ids;
  const Value* embed;
  const Value* head;
  int32_t* chain;
  Value* features;
  float* logits;
  int32_t* drafts;
  uint64_t* best;  // [sequences, blocks] the largest key of each block
  int32_t* done;   // blocks that have written theirs

  __device__ float* logits_of(int sequence) const {
    return logits + int64_t{sequence * block + step} * vocab;
  }
  __device__ int32_t previous(int sequence) const {
    return step == 0 ? ids[sequence * block] : chain[sequence * (block + 1) + step];
  }
};

// Eight channels from `channel` on; zeros beyond the row's end.
__device__ uint4 eight_channels(const Value* row, int channel, int rank) {
  if (channel + 8 <= rank && rank % 8 == 0) {
    return __ldg(reinterpret_cast<const uint4*>(row + channel));
  }
  alignas(16) Value channels[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    channels[i] = channel + i < rank ? row[channel + i] : Value(0.0f);
  }
  return *reinterpret_cast<const uint4*>(channels);
}

// Orders by value, then lower ids first. NaN is below all.
__device__ uint64_t key_of(float value, int id) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
  if (isnan(value)) order = 0;
  return uint64_t{order} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
__device__ int32_t id_of(uint64_t key) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

__device__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// kChunks: chunks of a row, all on their way at once, or 0: any number, one by one.
template <int kChunks>
struct HeadRows {
  uint4 upper[kChunks > 0 ? kChunks : 1],
      lower[kChunks > 0 ? kChunks : 1];  // of rows lane / 4 and lane / 4 + 8 of a tile

  __device__ void load(const Link& link, int tile, int lane) {
    const int row = tile * kTileRows + lane / 4;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      upper[c] = part(link, row, c, lane);
      lower[c] = part(link, row + 8, c, lane);
    }
  }
  __device__ static uint4 part(const Link& link, int row, int chunk, int lane) {
    if (row >= link.vocab) return {};
    return eight_channels(link.head + int64_t{row} * link.rank, chunk * kChunk + lane % 4 * 8,
                          link.rank);
  }
};

__device__ void multiply(float (&sums)[4], const uint4& upper, const uint4& lower,
                         const uint4& feature) {
  const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
  const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
  mma_bf16(sums, first, {feature.x, feature.y});
  mma_bf16(sums, second, {feature.z, feature.w});
}

// The logits of a tile's rows that a lane adds to: of two sequences in each group of eight.
template <int kGroups>
struct TileLogits {
  float values[kGroups][4];

  // visit(group, i, logit's address, id) for those that exist; ids of a sequence ascend.
  template <class Visit>
  __device__ void for_each(const Link& link, int tile, int first, int lane, Visit visit) {
    const int first_id = tile * kTileRows + lane / 4, first_sequence = first + lane % 4 * 2;
    const int64_t stride = int64_t{link.block} * link.vocab;
    float* const at = link.logits_of(first_sequence) + first_id;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int id = first_id + i / 2 * 8, sequence = g * kColumns + i % 2;
        if (id >= link.vocab || first_sequence + sequence >= link.sequences) continue;
        visit(g, i, at + sequence * stride + i / 2 * 8, id);
      }
    }
  }
  __device__ void load(const Link& link, int tile, int first, int lane) {
    for_each(link, tile, first, lane,
             [&](int g, int i, const float* logit, int) { values[g][i] = *logit; });
  }
};

// The largest of what a lane has seen of one sequence, the first of equals. NaN is never larger.
struct Best {
  float value;
  int id;  // -1: has seen nothing

  __device__ void see(float other, int other_id) {
    if (other > value || id < 0) {
      value = other;
      id = other_id;
    }
  }
  __device__ uint64_t key() const { return id < 0 ? 0 : key_of(value, id); }
};

// The block that is last to arrive chooses among all blocks' best.
__device__ void choose(const Link& link) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(link.done, 1) == static_cast<int>(gridDim.x) - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const int lane = threadIdx.x % 32;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < link.sequences; s += kWarps) {
    uint64_t best = 0;
    for (int64_t i = lane; i < gridDim.x; i += 32) {
      best = larger(best, __ldcg(link.best + s * gridDim.x + i));
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      best = larger(best, __shfl_xor_sync(~0u, best, distance));
    }
    if (lane != 0) continue;
    link.drafts[s * link.block + link.step] = id_of(best);
    link.chain[s * (link.block + 1) + link.step + 1] = id_of(best);
  }
  if (threadIdx.x == 0) *link.done = 0;
}

template <int kChunks, int kGroups>
__global__ void __launch_bounds__(kWarps * 32, 2) step_chain(const Link link) {
  // [groups][chunks][32 lanes], as lanes read them
  extern __shared__ uint4 features[];
  __shared__ uint64_t block_best[kWarps][kGroups * kColumns];
  constexpr int kSequences = kGroups * kColumns;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tiles = (link.vocab + kTileRows - 1) / kTileRows;
  const int first_tile = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const int chunks = (link.rank + kChunk - 1) / kChunk;
  HeadRows<kChunks> rows;
  if (kChunks > 0 && first_tile < tiles) rows.load(link, first_tile, lane);
  wait_for_inputs();
  let_next_start();
  for (int first = 0; first < link.sequences; first += kSequences) {
    for (int at = static_cast<int>(threadIdx.x); at < kGroups * chunks * 32; at += kWarps * 32) {
      const int sequence = first + at / 32 / chunks * kColumns + at % 32 / 4;
      features[at] = {};
      if (sequence >= link.sequences) continue;
      const Value* row = link.embed + int64_t{link.previous(sequence)} * link.rank;
      features[at] = eight_channels(row, at / 32 % chunks * kChunk + at % 4 * 8, link.rank);
    }
    __syncthreads();
    Best best[kGroups][2];
#pragma unroll
    for (auto& of_group : best) of_group[0] = of_group[1] = {0, -1};
    TileLogits<kGroups> logits;
    if (first_tile < tiles) logits.load(link, first_tile, first, lane);
    if (kChunks > 0 && first > 0 && first_tile < tiles) rows.load(link, first_tile, lane);
    for (int tile = first_tile; tile < tiles; tile += stride) {
      float sums[kGroups][4] = {};
      const auto multiply_chunk = [&](int chunk, const uint4& upper, const uint4& lower) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply(sums[g], upper, lower, features[(g * chunks + chunk) * 32 + lane]);
        }
      };
      const int next = tile + stride;
      if constexpr (kChunks > 0) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) multiply_chunk(c, rows.upper[c], rows.lower[c]);
        // On their way while this tile's logits are written.
        if (next < tiles) rows.load(link, next, lane);
      } else {
        const int row = tile * kTileRows + lane / 4;
        for (int c = 0; c < chunks; ++c) {
          multiply_chunk(c, rows.part(link, row, c, lane), rows.part(link, row + 8, c, lane));
        }
      }
      logits.for_each(link, tile, first, lane, [&](int g, int i, float* logit, int id) {
        const float sum = logits.values[g][i] + sums[g][i];
        *logit = sum;
        best[g][i % 2].see(sum, id);
      });
      if (next < tiles) logits.load(link, next, first, lane);
    }
#pragma unroll
    for (int at = 0; at < 2 * kGroups; ++at) {
      uint64_t mine = best[at / 2][at % 2].key();
      for (int distance = 4; distance < 32; distance *= 2) {
        mine = larger(mine, __shfl_xor_sync(~0u, mine, distance));
      }
      if (lane < 4) block_best[warp][at / 2 * kColumns + lane * 2 + at % 2] = mine;
    }
    __syncthreads();
    if (threadIdx.x < kSequences && first + threadIdx.x < link.sequences) {
      uint64_t of_block = 0;
      for (const auto& of_warp : block_best) of_block = larger(of_block, of_warp[threadIdx.x]);
      link.best[(first + threadIdx.x) * gridDim.x + blockIdx.x] = of_block;
    }
    __syncthreads();
  }
  if (blockIdx.x == 0) {
    for (int at = static_cast<int>(threadIdx.x); at < link.sequences * link.rank;
         at += kWarps * 32) {
      const int sequence = at / link.rank, channel = at % link.rank;
      const int32_t token = link.previous(sequence);
      link.features[(sequence * link.block + link.step) * link.rank + channel] =
          link.embed[int64_t{token} * link.rank + channel];
      if (link.step == 0 && channel == 0) link.chain[sequence * (link.block + 1)] = token;
    }
  }
  choose(link);
}

constexpr int kConfidenceThreads = 256;

// One block a row; the order of additions follows from the widths alone.
__global__ void project_confidence(const Value* x, const Value* features, const Value* projection,
                                   int64_t dim, int64_t rank, float* confidence) {
  wait_for_inputs();
  __shared__ float sums[kConfidenceThreads / 32];
  const int64_t row = blockIdx.x;
  float sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < dim + rank; i += kConfidenceThreads) {
    const Value joined = i < dim ? x[row * dim + i] : features[row * rank + i - dim];
    sum += __bfloat162float(joined) * __bfloat162float(projection[i]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0;
  for (float part : sums) total += part;
  confidence[row] = total;
}

const Value* values(View<const bf16> view) { return reinterpret_cast<const Value*>(view.data); }

}  // namespace

void markov_step(Queue& queue, const MarkovStepArgs& args) {
  check_shapes(args);
  const int64_t sequences = args.drafts.extent(0);
  const int64_t vocab = args.embed.extent(0), rank = args.embed.extent(1);
  if (sequences == 0) return;
  const int64_t tiles = (vocab + kTileRows - 1) / kTileRows;
  const int64_t wanted = (tiles + kWarps - 1) / kWarps;
  const int64_t full = queue.multiprocessors() * 2;
  const int64_t blocks = wanted < full ? wanted : full;
  const int64_t chunks = (rank + kChunk - 1) / kChunk;
  Scratch scratch(queue);
  const Link link{.step = static_cast<int>(args.step),
                  .sequences = static_cast<int>(sequences),
                  .block = static_cast<int>(args.drafts.extent(1)),
                  .vocab = static_cast<int>(vocab),
                  .rank = static_cast<int>(rank),
                  .ids = args.ids.data,
                  .embed = values(args.embed),
                  .head = values(args.head),
                  .chain = args.chain.data,
                  .features = reinterpret_cast<Value*>(args.features.data),
                  .logits = args.logits.data,
                  .drafts = args.drafts.data,
                  .best = scratch.allocate<uint64_t>(sequences * blocks),
                  .done = queue.counters()};
  const auto start = [&]<int kGroups>(std::integral_constant<int, kGroups>) {
    const LaunchShape shape{
        .blocks = dim3(static_cast<unsigned>(blocks)),
        .threads = kWarps * 32,
        .shared_bytes = static_cast<size_t>(kGroups * chunks) * 32 * sizeof(uint4)};
    launch(queue, "markov_step", rank == 256 ? step_chain<8, kGroups> : step_chain<0, kGroups>,
           shape, link);
  };
  if (sequences <= kColumns) {
    start(std::integral_constant<int, 1>{});
  } else {
    start(std::integral_constant<int, 4>{});
  }
}

void draft_confidence(Queue& queue, const DraftConfidenceArgs& args) {
  check_shapes(args);
  const auto rows = static_cast<unsigned>(args.x.extent(0));
  launch(queue, "draft_confidence", project_confidence,
         {.blocks = dim3(rows), .threads = kConfidenceThreads}, values(args.x),
         values(args.features), values(args.projection), args.x.extent(1), args.features.extent(1),
         args.confidence.data);
}

}  // namespace cachalot::cuda
