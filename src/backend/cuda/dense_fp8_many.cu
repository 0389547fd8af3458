// Many rows of x (docs/kernels/dense_fp8.md). A block walks tiles of 128 rows of x and 128 of the
// weight: one thread brings steps of 128 columns into a ring of stages, two consumer warpgroups
// multiply 64 rows of x each. While one adds a block's products to its sums the other's are in the
// tensor cores. Two blocks of a cluster have the same rows of the weight: each brings half of them
// for both.
#include <algorithm>

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kTile = 128;   // rows of x, and of the weight
constexpr int kCluster = 2;  // blocks
constexpr int kGroups = 2;   // consumer warpgroups, 64 rows of x each
constexpr int kStages = 5;
constexpr int kXAt = 0, kWeightAt = kTile * kStepColumns, kTileScalesAt = 2 * kWeightAt;
constexpr int kXScalesAt = kTileScalesAt + 128;
constexpr int kStageBytes = kTileScalesAt + 1024;
constexpr uint32_t kBytes =
    2 * kTile * kStepColumns + kTile / 32 * kStepBlocks * 4 + kTile * sizeof(uint32_t);
constexpr int kOutputAt = kStages * kStageBytes;
constexpr int kOutputBytes = kTile * kTile * 2;
constexpr int kBoxColumns = 64, kBoxBytes = 64 * kBoxColumns * 2;  // of the output
constexpr int kBarriersAt = kOutputAt + kOutputBytes;
constexpr size_t kSharedBytes = 1024 + kBarriersAt + 2 * kStages * sizeof(Barrier);
constexpr int kThreads = (kGroups + 1) * 128;
// Tiles of x that are walked together: with as many of the weight, what blocks read at a time stays
// in L2.
constexpr int kTogether = 16;

struct Many {
  CUtensorMap weight, tile_scales, x, y;
  const uint32_t* x_scales;  // QuantizedRows::scales
  int scale_stride;
  int x_pairs, weight_tiles;  // pairs of tiles of x: one per cluster
  Fp8Cut cut;
  int out;
  const __nv_bfloat16* bias;
};

// The first row of x and of the weight of a cluster's n-th piece of work.
struct Place {
  int x, weight;

  __device__ Place(const Many& p, int work) {
    const int whole = kTogether / kCluster * p.weight_tiles;
    const int first = work / whole * (kTogether / kCluster);
    const int together = min(kTogether / kCluster, p.x_pairs - first);
    const int rest = work % whole;
    const int block = static_cast<int>(blockIdx.x) % kCluster;
    x = ((first + rest % together) * kCluster + block) * kTile;
    weight = rest / together * kTile;
  }
};

__device__ inline int first_work() { return static_cast<int>(blockIdx.x) / kCluster; }
__device__ inline int work_step() { return static_cast<int>(gridDim.x) / kCluster; }

struct Stages {
  uint8_t* stages;
  Barrier *full, *empty;

  __device__ explicit Stages(uint8_t* shared) {
    stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
    full = reinterpret_cast<Barrier*>(stages + kBarriersAt);
    empty = full + kStages;
  }
  __device__ uint8_t* at(int stage) const { return stages + stage * kStageBytes; }
};

// One thread. A stage is empty when the consumers of both blocks have left it: the weight's halves
// go to both.
__device__ inline void produce(const Many& p, const Stages& s) {
  const int block = static_cast<int>(blockIdx.x) % kCluster;
  int use = 0;
  for (int work = first_work(); work < p.x_pairs * p.weight_tiles; work += work_step()) {
    const Place place(p, work);
    for (int step = 0; step < p.cut.steps; ++step, ++use) {
      const int stage = use % kStages;
      uint8_t* to = s.at(stage);
      Barrier* full = &s.full[stage];
      if (use >= kStages) barrier_wait(&s.empty[stage], (use / kStages - 1) % 2);
      barrier_expect(full, kBytes);
      const int half = kTile / kCluster * block;
      copy_box_to_blocks(to + kWeightAt + half * kStepColumns, p.weight, step * kStepColumns,
                         place.weight + half, full, (1 << kCluster) - 1);
      copy_box(to + kXAt, p.x, step * kStepColumns, place.x, full);
      copy_box(to + kTileScalesAt, p.tile_scales, step * kStepBlocks, place.weight / 32, full);
      copy_bulk(to + kXScalesAt, p.x_scales + int64_t{step} * p.scale_stride + place.x,
                kTile * sizeof(uint32_t), full);
    }
  }
}

// Rounds 64 rows to BF16 and has them written. A tile in shared memory is two boxes of 64 columns,
// swizzled: a warp's stores meet every bank once.
__device__ inline void store(const Many& p, const Stages& s, const Place& place, int group,
                             const float (&sums)[kTile / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128, quad = thread % 4;
  const int row = thread / 32 * 16 + thread % 32 / 4;
  uint8_t* tile = s.stages + kOutputAt + group * (kOutputBytes / kGroups);
  const int columns = min(kTile, p.out - place.weight);
  if (thread == 0) wait_stores_read<0>();
  sync_threads_of(1 + group, 128);
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
    const int column = min(8 * j + 2 * quad, columns - 2) + place.weight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = with_bias(sums[4 * j + 2 * half], p.bias, column);
      const float high = with_bias(sums[4 * j + 2 * half + 1], p.bias, column + 1);
      *reinterpret_cast<__nv_bfloat162*>(tile + j / 8 * kBoxBytes + (row + 8 * half) * 128 +
                                         (j % 8 ^ row % 8) * 16 + quad * 4) =
          __floats2bfloat162_rn(low, high);
    }
  }
  fence_shared_for_async();
  sync_threads_of(1 + group, 128);
  if (thread != 0) return;
  for (int box = 0; box < 2; ++box) {
    store_box(p.y, place.weight + box * kBoxColumns, place.x + group * 64, tile + box * kBoxBytes);
  }
  commit_stores();
}

template <bool kChunks>
__device__ inline void consume(const Many& p, const Stages& s, int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32;
  const int lane = thread % 32;
  const int x_row = group * 64 + warp * 16 + lane / 4;  // and that + 8
  int use = 0;
  float products[kTile / 2];
#pragma unroll
  for (float& product : products) product = 0;
  for (int work = first_work(); work < p.x_pairs * p.weight_tiles; work += work_step()) {
    const Place place(p, work);
    float sums[kTile / 2], total[kChunks ? kTile / 2 : 1];
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll
    for (float& sum : total) sum = kNothing;
    int chunk = 0, chunk_end = p.cut.first_step(1);
    for (int step = 0; step < p.cut.steps; ++step, ++use) {
      const int stage = use % kStages;
      const uint8_t* from = s.at(stage);
      barrier_wait(&s.full[stage], use / kStages % 2);
      const uint64_t x = shared_descriptor(from + kXAt + group * 64 * kStepColumns,
                                           SharedLayout::swizzle_128, 1024);
      const uint64_t weight = shared_descriptor(from + kWeightAt, SharedLayout::swizzle_128, 1024);
      const auto* x_scales = reinterpret_cast<const uint32_t*>(from + kXScalesAt);
      const uint32_t x_codes[2] = {x_scales[x_row], x_scales[x_row + 8]};
      const auto* tile_scales = reinterpret_cast<const float4*>(from + kTileScalesAt);
      float4 scales[kTile / 32];
#pragma unroll
      for (int i = 0; i < kTile / 32; ++i) scales[i] = tile_scales[i];
#pragma unroll
      for (int block = 0; block < kStepBlocks; ++block) {
        wgmma_fence();
        wgmma_fp8(products, advance_descriptor(x, block * 32),
                  advance_descriptor(weight, block * 32), false);
        wgmma_commit();
        const float first = block_scale(x_codes[0], block);
        const float second = block_scale(x_codes[1], block);
        wgmma_wait<0>();
        wgmma_hold(products);
        if (block == kStepBlocks - 1 && lane < kCluster) {
          barrier_arrive_at(&s.empty[stage], lane);
        }
#pragma unroll
        for (int i = 0; i < kTile / 32; ++i) {
          const float low = first * at(scales[i], block), high = second * at(scales[i], block);
#pragma unroll
          for (int j = 16 * i; j < 16 * (i + 1); j += 4) {
            sums[j] = add_block(sums[j], products[j], low);
            sums[j + 1] = add_block(sums[j + 1], products[j + 1], low);
            sums[j + 2] = add_block(sums[j + 2], products[j + 2], high);
            sums[j + 3] = add_block(sums[j + 3], products[j + 3], high);
          }
        }
      }
      if constexpr (kChunks) {
        if (step + 1 == chunk_end) {
          ++chunk;
          chunk_end = p.cut.first_step(chunk + 1);
#pragma unroll
          for (int i = 0; i < kTile / 2; ++i) {
            total[i] += sums[i];
            sums[i] = 0;
          }
        }
      }
    }
    if constexpr (kChunks) {
      store(p, s, place, group, total);
    } else {
      store(p, s, place, group, sums);
    }
  }
  if (thread == 0) wait_stores<0>();
}

template <bool kChunks>
__global__ void __launch_bounds__(kThreads, 1) multiply(const __grid_constant__ Many p) {
  extern __shared__ uint8_t shared[];
  const Stages stages(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&stages.full[i], 1);
      barrier_init(&stages.empty[i], kCluster * kGroups * 4);
    }
    fence_barrier_init();
  }
  sync_cluster();
  wait_for_inputs();
  let_next_start();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < kGroups) {
    take_registers<240>();
    consume<kChunks>(p, stages, group);
  } else {
    give_registers<24>();
    if (threadIdx.x == kGroups * 128) produce(p, stages);
  }
  sync_cluster();
}

}  // namespace

void multiply_fp8_many(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                       const Fp8Output& out) {
  const int64_t x_tiles = (x.rows + kTile - 1) / kTile;
  const Many p{
      .weight = codes_map(weight.codes.data, weight.rows, weight.columns, kTile / kCluster),
      .tile_scales = tile_scales_map(weight, kTile / 32),
      .x = codes_map(x.codes, x.rows, x.columns, kTile),
      .y = tensor_map(out.y, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                              .rows = x.rows,
                              .columns = weight.rows,
                              .row_bytes = weight.rows * 2,
                              .box_rows = 64,
                              .box_columns = kBoxColumns}),
      .x_scales = x.scales,
      .scale_stride = static_cast<int>(x.scale_stride),
      .x_pairs = static_cast<int>((x_tiles + kCluster - 1) / kCluster),
      .weight_tiles = static_cast<int>((weight.rows + kTile - 1) / kTile),
      .cut = cut_fp8(weight.rows, weight.columns),
      .out = static_cast<int>(weight.rows),
      .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias)};
  const int clusters = std::min(p.x_pairs * p.weight_tiles, queue.multiprocessors() / kCluster);
  launch(queue, "linear", p.cut.chunks > 1 ? multiply<true> : multiply<false>,
         {.blocks = dim3(clusters * kCluster),
          .threads = kThreads,
          .shared_bytes = kSharedBytes,
          .cluster = kCluster},
         p);
}

}  // namespace cachalot::cuda
