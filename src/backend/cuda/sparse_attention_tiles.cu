// sparse_attention for 64 heads of 512 channels on the tensor cores
// (docs/kernels/sparse_attention_cuda.md).
//
// The heads of a token share every key, so they are the M = 64 of its products: S = Q . K^T, then
// O = P . K. The contract's maximum is over all keys, so all scores come first and stay in
// registers; the keys are decoded twice. Per block two warpgroups multiply and two decode packed
// rows into a ring of stages: 4 panels of 64 keys x 64 channels in BF16, which serve both products
// (K contiguous along channels for S, along keys for O).
//
// kBlocks blocks of a cluster may share a token. Each computes the scores of its share of the keys
// over all channels and hands P to the others; then each computes its share of the channels over
// all keys. So every score and every output is one sum in one order for any kBlocks.
//
// Order of channels: in panels and sums the eight channels of a 16-byte piece lie as 0 4 1 5 2 6 3
// 7, which is how 4-bit codes come out of a word two at a time.
// Scale: panels hold values times 2^-7, with which all scales fit BF16; scores and outputs are
// multiplied by 2^7, all of it exact.
// Code that runs once per token comes from memory each time, so it is kept short: what can be a
// loop is one.
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/exp2.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"
#include "backend/cuda/sparse_attention.h"
#include "backend/cuda/sparse_attention_producers.h"

namespace cachalot::cuda {
namespace tiles {
namespace {

// Named barriers.
constexpr int kConsumersMeet = 1, kAllMeet = 2;

__device__ void consumers_meet() { sync_threads_of(kConsumersMeet, kConsumers); }

// q into its panels: on its way while the keys are looked up.
class QueryLoad {
 public:
  __device__ QueryLoad(const AttentionParameters& of, int64_t token) {
    const auto* q = reinterpret_cast<const uint4*>(of.q) + token * (kHeads * kHeadPieces);
#pragma unroll
    for (int i = 0; i < kCount; ++i) pieces_[i] = __ldg(q + i * kThreads + threadIdx.x);
  }
  __device__ void store(Shared& shared) const {
    const int first = threadIdx.x / kHeadPieces, piece = threadIdx.x % kHeadPieces;
    uint8_t* panel = shared.operand + piece / 8 * kPanelBytes;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int head = i * (kThreads / kHeadPieces) + first;
      *reinterpret_cast<uint4*>(panel + head * 128 + ((piece % 8 ^ head % 8) << 4)) =
          interleaved(pieces_[i]);
    }
  }

 private:
  static constexpr int kHeadPieces = kChannels / 8, kCount = kHeads * kHeadPieces / kThreads;
  uint4 pieces_[kCount];
};

// The fence between a stage's stores and the products that read it is here and not with the
// producers, where it would wait for the loads they have under way.
__device__ void wait_for_stage(Shared& shared, int stage) {
  barrier_wait(&shared.full[stage % kStages], stage / kStages & 1);
  fence_shared_for_async();
}

__device__ void release_stage(Shared& shared, int stage, int times) {
  if (threadIdx.x % 32 != 0) return;
  for (int i = 0; i < times; ++i) barrier_arrive(&shared.empty[stage % kStages]);
}

// Maximum and sum over the four lanes that hold a row.
__device__ float largest_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ float sum_of_row(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// Where an aligned group of eight slots of a head's P lies.
__device__ uint8_t* weights_at(Shared& shared, int head, int slot) {
  return shared.operand + slot / kTileKeys * kPanelBytes + head * 128 +
         ((slot / 8 % 8 ^ head % 8) << 4);
}

// A thread of a consumer: its warpgroup, and the first of the two rows it holds; the other is 8
// further.
struct Place {
  int group = uniform(threadIdx.x / 128);
  int quad = threadIdx.x % 4;
  int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
};

// The scores of one tile, unscaled.
__device__ __forceinline__ void multiply_keys(Shared& shared, int tile, float (&scores)[32]) {
  const uint64_t q = shared_descriptor(shared.operand, SharedLayout::swizzle_128, 1024);
#pragma unroll 1
  for (int stage = 2 * tile; stage < 2 * tile + 2; ++stage) {
    wait_for_stage(shared, stage);
    const uint64_t keys =
        shared_descriptor(shared.stages[stage % kStages], SharedLayout::swizzle_128, 1024);
    const uint32_t first = stage % 2 * kStagePanels * kPanelBytes;
    wgmma_fence();
#pragma unroll 1
    for (int panel = 0; panel < kStagePanels; ++panel) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t step = panel * kPanelBytes + k * 32;
        wgmma_bf16<64>(scores, advance_descriptor(q, first + step), advance_descriptor(keys, step),
                       first + step > 0);
      }
    }
    wgmma_commit();
  }
  wgmma_wait<1>();
  release_stage(shared, 2 * tile, 2);
  wgmma_wait<0>();
  release_stage(shared, 2 * tile + 1, 2);
  wgmma_hold(scores);
}

// Scores of slots without a key.
__device__ __forceinline__ void mask(const Slots& slots, int slot, int quad, float (&scores)[32]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int keys = slots.keys_from(slot + 8 * j) - 2 * quad;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k % 2 >= keys) scores[4 * j + k] = -INFINITY;
    }
  }
}

// From the largest scores of a thread's rows to those over all keys, in all blocks.
template <int kBlocks>
__device__ void find_largest(Shared& shared, int rank, const Place& at, float (&largest)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    largest[h] = largest_of_row(largest[h]);
    if (at.quad == 0) shared.largest_of_group[at.group][at.row + 8 * h] = largest[h];
  }
  consumers_meet();
  if constexpr (kBlocks > 1) {
    const int head = threadIdx.x % kHeads;
    const float of_block =
        fmaxf(shared.largest_of_group[0][head], shared.largest_of_group[1][head]);
    cluster_wait();
#pragma unroll 1
    for (int block = threadIdx.x / kHeads; block < kBlocks; block += kConsumers / kHeads) {
      store_in_block(address_in_block(&shared.largest_of_block[rank][head], block), of_block);
    }
    fence_cluster();
    consumers_meet();
    if (threadIdx.x < kBlocks) barrier_arrive_at(&shared.largest_there, threadIdx.x);
    barrier_wait_for_cluster(&shared.largest_there, 0);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = at.row + 8 * h;
    if constexpr (kBlocks > 1) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        largest[h] = fmaxf(largest[h], shared.largest_of_block[i][row]);
      }
    } else {
      largest[h] = fmaxf(largest[h], shared.largest_of_group[at.group ^ 1][row]);
    }
    if (at.group == 0 && at.quad == 0) shared.largest[row] = largest[h];
  }
}

// Where a thread puts its part of P: offsets in a panel of four aligned groups of eight slots, of
// its first row. Of slots 32 further bit 6 is the other one.
struct WeightPlaces {
  uint32_t offsets[4];

  __device__ explicit WeightPlaces(const Place& at) {
#pragma unroll
    for (int j = 0; j < 4; ++j) offsets[j] = at.row * 128 + ((j ^ at.row % 8) << 4) + 4 * at.quad;
  }
};

// P of 32 slots and the sums of their exponentials. exponent_scale: to scores in units of log2(e);
// the exponent is off by as much as rounding a score to FP32 costs, and the weight by 2^-22.
__device__ __forceinline__ void weigh(Shared& shared, const Place& at, const WeightPlaces& places,
                                      uint32_t slot, float exponent_scale,
                                      const float (&largest)[2], const float* scores) {
  float sums[2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint8_t* to =
        shared.operand + slot / kTileKeys * kPanelBytes + (places.offsets[j] ^ slot / 32 % 2 * 64);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* two = scores + 4 * j + 2 * h;
      const float shift = -largest[h] * exponent_scale;
      const float first = exp2_approximately(fmaf(two[0], exponent_scale, shift));
      const float second = exp2_approximately(fmaf(two[1], exponent_scale, shift));
      *reinterpret_cast<__nv_bfloat162*>(to + h * 8 * 128) = __floats2bfloat162_rn(first, second);
      sums[h] = j == 0 ? first + second : sums[h] + (first + second);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_of_row(sums[h]);
    if (at.quad == 0) shared.sums[slot / kGroupKeys][at.row + 8 * h] = sum;
  }
}

// This block's P and sums to the others of the cluster, 16 bytes at a time.
template <int kBlocks>
__device__ void hand_out_weights(Shared& shared, const Slots& slots, int rank) {
  const auto send = [&](const void* from) {
    const uint4 value = *static_cast<const uint4*>(from);
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) {
      store_in_block(address_in_block(from, (rank + i) % kBlocks), value);
    }
  };
  const int keys = slots.end - slots.begin;
#pragma unroll 1
  for (int i = threadIdx.x; i < kHeads * keys / 8; i += kConsumers) {
    send(weights_at(shared, i % kHeads, slots.begin + i / kHeads * 8));
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < kHeads / 4 * keys / kGroupKeys; i += kConsumers) {
    send(&shared.sums[slots.begin / kGroupKeys][4 * i]);
  }
}

// How a block multiplies P with its channels of the keys: both warpgroups, or with 64 channels the
// first alone; a stage holds one tile of both's channels, half a tile (one block) or several.
template <int kBlocks>
struct Values {
  static constexpr int kBlockChannels = kChannels / kBlocks;
  static constexpr int kGroups = kBlockChannels > 64 ? 2 : 1;
  static constexpr int kWidth = kBlockChannels / kGroups;
  // One product of 256 channels would need more registers than a thread starts with.
  static constexpr int kN = kWidth > 128 ? 128 : kWidth, kParts = kWidth / kN;
  static constexpr int kStageTiles = kBlocks == 1 ? 1 : kBlocks / 2;
  static constexpr int kTilePanels = kStagePanels / kStageTiles;
  static constexpr int kReleases = kBlocks == 1 || kGroups == 1 ? 2 : 1;
  // Rows of sums are 8 banks apart.
  static constexpr int kRowBytes = kBlockChannels * 4 + 32;

  __device__ static int stages(int tiles) {
    return kBlocks == 1 ? 2 * tiles : (tiles + kStageTiles - 1) / kStageTiles;
  }
};

template <int kBlocks>
__device__ __forceinline__ void multiply_values(
    Shared& shared, int tiles, int group, int stage, int stages,
    float (&out)[Values<kBlocks>::kParts][Values<kBlocks>::kN / 2]) {
  using V = Values<kBlocks>;
  const uint64_t weights = shared_descriptor(shared.operand, SharedLayout::swizzle_128, 1024);
  // With one block a stage holds the channels of one warpgroup.
  constexpr int kEvery = kBlocks == 1 ? 2 : 1;
  int tile = 0, before = -1;
#pragma unroll 1
  for (stage += kBlocks == 1 ? group : 0; stage < stages; stage += kEvery) {
    wait_for_stage(shared, stage);
    wgmma_fence();
    const uint8_t* panel = shared.stages[stage % kStages] +
                           (kBlocks == 1 ? 0 : group * (V::kWidth / 64) * kPanelBytes);
#pragma unroll
    for (int i = 0; i < V::kStageTiles; ++i) {
      if (tile < tiles) {
        const uint64_t values = shared_descriptor(panel + i * V::kTilePanels * kPanelBytes,
                                                  SharedLayout::swizzle_128, 1024, kPanelBytes);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int n = 0; n < V::kParts; ++n) {
            wgmma_bf16<V::kN, Contiguous::k, Contiguous::other>(
                out[n], advance_descriptor(weights, tile * kPanelBytes + k * 32),
                advance_descriptor(values, n * (V::kN / 64) * kPanelBytes + k * 16 * 128),
                tile + k > 0);
          }
        }
        ++tile;
      }
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (before >= 0) release_stage(shared, before, V::kReleases);
    before = stage;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int n = 0; n < V::kParts; ++n) wgmma_hold(out[n]);
}

// From the sums in shared memory: the quotient, the turn back, the order of channels. By all
// threads of the block.
template <int kBlocks>
__device__ void write_output(const AttentionParameters& of, const Shared& shared, int64_t token,
                             int rank) {
  using V = Values<kBlocks>;
  constexpr int kPieces = V::kBlockChannels / 8;
  auto* o = reinterpret_cast<uint4*>(of.o) + token * kHeads * (kChannels / 8) + rank * kPieces;
#pragma unroll 1
  for (int i = threadIdx.x; i < kHeads * kPieces; i += kThreads) {
    const int head = i / kPieces, piece = i % kPieces;
    const auto* sums =
        reinterpret_cast<const float4*>(shared.stages[0] + head * V::kRowBytes) + 2 * piece;
    const float4 low = sums[0], high = sums[1];
    const float x[8] = {low.x, low.z, high.x, high.z, low.y, low.w, high.y, high.w};
    const float denominator = shared.denominators[head], inverse = __frcp_rn(denominator);
    const int rotated = rank * V::kBlockChannels + 8 * piece - (kChannels - 2 * kPairs);
    __nv_bfloat162 out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // The correctly rounded quotient: one step of Newton's on a correctly rounded inverse.
      const auto quotient = [&](float value) {
        const float near = value * inverse;
        return fmaf(fmaf(-near, denominator, value), inverse, near);
      };
      out[j] = __floats2bfloat162_rn(quotient(x[2 * j]), quotient(x[2 * j + 1]));
      if (rotated >= 0) {
        const float2 turn = shared.turns[rotated / 2 + j];
        const float2 turned =
            rotate_pair(__low2float(out[j]), __high2float(out[j]), turn.x, -turn.y);
        out[j] = __floats2bfloat162_rn(turned.x, turned.y);
      }
    }
    o[head * (kChannels / 8) + piece] = *reinterpret_cast<const uint4*>(out);
  }
}

template <int kBlocks>
__device__ void consume(const AttentionParameters& of, Shared& shared, const Slots& slots,
                        int64_t token, int rank, int score_stages, int stages) {
  using V = Values<kBlocks>;
  // Tiles of the block's share that a warpgroup multiplies: every other one.
  constexpr int kShareGroups = (kMostTiles * kTileGroups + kBlocks - 1) / kBlocks;
  constexpr int kTiles = ((kShareGroups + kTileGroups - 1) / kTileGroups + 1) / 2;
  const Place at;
  float scores[kTiles][32];
  float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const int tile = 2 * i + at.group;
    if (tile < slots.share_tiles()) {
      multiply_keys(shared, tile, scores[i]);
      const int slot = slots.begin + tile * kTileKeys;
      if (!slots.whole(slot)) mask(slots, slot, at.quad, scores[i]);
#pragma unroll
      for (int j = 0; j < 32; ++j) largest[j / 2 % 2] = fmaxf(largest[j / 2 % 2], scores[i][j]);
    }
  }
  find_largest<kBlocks>(shared, rank, at, largest);

  // P, over q.
  const WeightPlaces places(at);
  const float exponent_scale = of.scale * kPanelScaleInverse * 1.4426950408889634f;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int g = 0; g < kTileGroups; ++g) {
      const int slot = slots.begin + (2 * i + at.group) * kTileKeys + g * kGroupKeys;
      if (slot < slots.end) {
        weigh(shared, at, places, slot, exponent_scale, largest, &scores[i][g * kGroupKeys / 2]);
      }
    }
  }
  fence_shared_for_async();
  consumers_meet();
  if constexpr (kBlocks > 1) {
    hand_out_weights<kBlocks>(shared, slots, rank);
    fence_cluster();
    fence_shared_for_async();
    consumers_meet();
    if (threadIdx.x < kBlocks) barrier_arrive_at(&shared.weights_there, threadIdx.x);
    barrier_wait_for_cluster(&shared.weights_there, 0);
    fence_shared_for_async();
  } else if (threadIdx.x == 0) {
    barrier_arrive(&shared.weights_there);
  }

  if (at.group < V::kGroups) {
    float out[V::kParts][V::kN / 2];
    multiply_values<kBlocks>(shared, slots.tiles, at.group, score_stages, stages, out);
    // The others may still read what the sums are written over.
    sync_threads_of(kConsumersMeet, V::kGroups * 128);
    uint8_t* sums = shared.stages[0] + at.row * V::kRowBytes +
                    (at.group * V::kWidth + 2 * at.quad) * sizeof(float);
#pragma unroll
    for (int j = 0; j < V::kWidth / 8; ++j) {
      const float* four = &out[8 * j / V::kN][8 * j % V::kN / 2];
      *reinterpret_cast<float2*>(sums + 32 * j) = {four[0], four[1]};
      *reinterpret_cast<float2*>(sums + 8 * V::kRowBytes + 32 * j) = {four[2], four[3]};
    }
  }
}

template <int kBlocks>
__global__ void __launch_bounds__(kThreads, 1) attention_kernel(AttentionParameters of) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t token = blockIdx.x / kBlocks;
  const int rank = blockIdx.x % kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], kProducers / 32);
      barrier_init(&shared.empty[i], kConsumers / 32);
    }
    barrier_init(&shared.largest_there, kBlocks);
    barrier_init(&shared.weights_there, kBlocks);
    fence_barrier_init();
  }
  __syncthreads();
  if constexpr (kBlocks > 1) cluster_arrive();
  wait_for_inputs();
  const QueryLoad query(of, token);
  const Slots slots = find_slots(of, shared, token, kBlocks, rank);
  query.store(shared);
  fence_shared_for_async();
  __syncthreads();
  let_next_start();

  const int score_stages = 2 * slots.share_tiles();
  const int stages = score_stages + Values<kBlocks>::stages(slots.tiles);
  if (uniform(threadIdx.x / kConsumers) != 0) {
    give_registers<64>();
    decode_stages<kBlocks>(shared, slots, rank, stages);
    prepare_output(of, shared, slots, token);
    if constexpr (kBlocks > 1) cluster_wait();
    sync_threads_of(kAllMeet, kThreads);
    write_output<kBlocks>(of, shared, token, rank);
  } else {
    take_registers<192>();
    consume<kBlocks>(of, shared, slots, token, rank, score_stages, stages);
    sync_threads_of(kAllMeet, kThreads);
    write_output<kBlocks>(of, shared, token, rank);
  }
}

template <int kBlocks>
void start(Queue& queue, const AttentionParameters& of, int64_t tokens) {
  launch(queue, "sparse_attention", attention_kernel<kBlocks>,
         {.blocks = static_cast<unsigned>(tokens * kBlocks),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared),
          .cluster = kBlocks},
         of);
}

// How many clusters run at once.
template <int kBlocks>
int64_t room_for_clusters() {
  check(cudaFuncSetAttribute(attention_kernel<kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             sizeof(Shared)),
        "sparse_attention");
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  const cudaLaunchConfig_t config{.gridDim = kBlocks,
                                  .blockDim = kThreads,
                                  .dynamicSmemBytes = sizeof(Shared),
                                  .attrs = &cluster,
                                  .numAttrs = 1};
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, attention_kernel<kBlocks>, &config),
        "sparse_attention");
  return count;
}

}  // namespace
}  // namespace tiles

bool sparse_attention_fits_tiles(const SparseAttentionArgs& args) {
  const int64_t chosen = args.chosen.present() ? args.chosen.extent(1) : 0;
  return args.q.extent(1) == kAttentionHeads && args.q.extent(2) == kAttentionChannels &&
         args.frequencies.extent(0) == kAttentionPairs &&
         attention_tiles(args.window + args.block, chosen) <= kAttentionMostTiles;
}

int sparse_attention_blocks(int64_t tokens) {
  static const AttentionRoom kRoom{.of_two = tiles::room_for_clusters<2>(),
                                   .of_four = tiles::room_for_clusters<4>(),
                                   .of_eight = tiles::room_for_clusters<8>()};
  return attention_blocks_per_token(tokens, kRoom);
}

void sparse_attention_in_tiles(Queue& queue, const SparseAttentionArgs& args, int blocks) {
  const AttentionParameters of = attention_parameters(args);
  const int64_t tokens = args.rows.tokens();
  switch (blocks) {
    case 8:
      return tiles::start<8>(queue, of, tokens);
    case 4:
      return tiles::start<4>(queue, of, tokens);
    case 2:
      return tiles::start<2>(queue, of, tokens);
    default:
      return tiles::start<1>(queue, of, tokens);
  }
}

}  // namespace cachalot::cuda
