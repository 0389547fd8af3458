// Many rows of x (docs/kernels/dense_fp8.md). A block walks tiles of 128 rows of x and 128 of the
// weight: one thread brings steps of 128 columns into a ring of stages, two consumer warpgroups
// multiply 64 rows of x each. While a block of 32 columns' products are added to the sums the next
// ones are in the tensor cores. Two blocks of a cluster have the same rows of the weight: each
// brings half of them for both.
#include <algorithm>

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kTile = 128;   // rows of x, and of the weight
constexpr int kCluster = 2;  // blocks
constexpr int kGroups = 2;   // consumer warpgroups, 64 rows of x each
constexpr int kXAt = 0, kWeightAt = kTile * kStepColumns, kTileScalesAt = 2 * kWeightAt;
constexpr int kXScalesAt = kTileScalesAt + 128;
constexpr int kStageBytes = kTileScalesAt + 1024;
constexpr uint32_t kBytes =
    2 * kTile * kStepColumns + kTile / 32 * kStepBlocks * 4 + kTile * sizeof(uint32_t);
constexpr int kOutputBytes = kTile * kTile * 2;

// With chunks the sums of those before lie in shared memory, where the output is put in the end:
// registers hold the chunk's sums and two blocks' products.
template <bool kChunks>
struct Layout {
  static constexpr int kStages = kChunks ? 4 : 5;
  static constexpr int kOutputAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kOutputAt + kOutputBytes * (kChunks ? 2 : 1);
  static constexpr size_t kSharedBytes = 1024 + kBarriersAt + 2 * kStages * sizeof(Barrier);
};

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

template <bool kChunks>
struct Shared {
  using L = Layout<kChunks>;
  uint8_t* stages;
  Barrier *full, *empty;

  __device__ explicit Shared(uint8_t* shared) {
    stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
    full = reinterpret_cast<Barrier*>(stages + L::kBarriersAt);
    empty = full + L::kStages;
  }
  __device__ uint8_t* stage(int index) const { return stages + index * kStageBytes; }
  // A consumer warpgroup's own.
  __device__ uint8_t* output(int group) const {
    return stages + L::kOutputAt + group * ((L::kBarriersAt - L::kOutputAt) / kGroups);
  }
};

// One thread. A stage is empty when the consumers of both blocks have left it: the weight's halves
// go to both.
template <bool kChunks>
__device__ inline void produce(const Many& p, const Shared<kChunks>& s) {
  const int block = static_cast<int>(blockIdx.x) % kCluster;
  int stage = 0, round = 0;
  for (int work = first_work(); work < p.x_pairs * p.weight_tiles; work += work_step()) {
    const Place place(p, work);
    for (int step = 0; step < p.cut.steps; ++step) {
      uint8_t* to = s.stage(stage);
      Barrier* full = &s.full[stage];
      if (round > 0) barrier_wait(&s.empty[stage], (round - 1) % 2);
      barrier_expect(full, kBytes);
      const int half = kTile / kCluster * block;
      copy_box_to_blocks(to + kWeightAt + half * kStepColumns, p.weight, step * kStepColumns,
                         place.weight + half, full, (1 << kCluster) - 1);
      copy_box(to + kXAt, p.x, step * kStepColumns, place.x, full);
      copy_box(to + kTileScalesAt, p.tile_scales, step * kStepBlocks, place.weight / 32, full);
      copy_bulk(to + kXScalesAt, p.x_scales + int64_t{step} * p.scale_stride + place.x,
                kTile * sizeof(uint32_t), full);
      if (++stage == Layout<kChunks>::kStages) {
        stage = 0;
        ++round;
      }
    }
  }
}

// Until the warpgroup's last output has been read.
__device__ inline void output_free(int group) {
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
  sync_threads_of(1 + group, 128);
}

// sums = totals + sums, in shared memory; a thread has every 128th float4 for itself.
__device__ inline void add_totals(const float4* totals, float (&sums)[kTile / 2]) {
#pragma unroll
  for (int i = 0; i < kTile / 8; ++i) {
    const float4 total = totals[i * 128 + threadIdx.x % 128];
    sums[4 * i] += total.x;
    sums[4 * i + 1] += total.y;
    sums[4 * i + 2] += total.z;
    sums[4 * i + 3] += total.w;
  }
}

template <bool kChunks>
class Consumer {
  using L = Layout<kChunks>;

 public:
  __device__ Consumer(const Many& p, const Shared<kChunks>& shared, int group)
      : p_(p), shared_(shared), group_(group) {}

  __device__ void run() {
#pragma unroll
    for (float& product : products_[0]) product = 0;
#pragma unroll
    for (float& product : products_[1]) product = 0;
    for (int work = first_work(); work < p_.x_pairs * p_.weight_tiles; work += work_step()) {
      const Place place(p_, work);
#pragma unroll
      for (float& sum : sums_) sum = 0;
      if constexpr (kChunks) output_free(group_);
      for (int chunk = 0; chunk < p_.cut.chunks; ++chunk) {
        if (kChunks && chunk > 0) close(chunk > 1);
        int steps = p_.cut.first_step(chunk + 1) - p_.cut.first_step(chunk);
        for (; steps >= 2; steps -= 2) add_steps<2>();
        if (steps > 0) add_steps<1>();
      }
      if constexpr (kChunks) {
        add_totals(totals(), sums_);
        sync_threads_of(1 + group_, 128);
      } else {
        output_free(group_);
      }
      write_results<kTile>(
          p_.y, shared_.output(group_), place.x + group_ * kBoxRows, place.weight, p_.out, p_.bias,
          [this] { sync_threads_of(1 + group_, 128); }, sums_);
    }
    if (threadIdx.x % 128 == 0) wait_stores<0>();
  }

 private:
  // A stage that is full: where its operands lie, and the scales this thread needs.
  struct Step {
    int stage;
    uint64_t x, weight;
    uint32_t codes[2];
    float4 tile_scales[kTile / 32];
  };

  // Waits for the next stage.
  __device__ Step enter() {
    Step step{.stage = stage_};
    const uint8_t* from = shared_.stage(stage_);
    barrier_wait(&shared_.full[stage_], parity_);
    if (++stage_ == L::kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
    step.x = shared_descriptor(from + kXAt + group_ * 64 * kStepColumns, SharedLayout::swizzle_128,
                               1024);
    step.weight = shared_descriptor(from + kWeightAt, SharedLayout::swizzle_128, 1024);
    const int row = group_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    const auto* x_scales = reinterpret_cast<const uint32_t*>(from + kXScalesAt);
    step.codes[0] = x_scales[row];
    step.codes[1] = x_scales[row + 8];
#pragma unroll
    for (int i = 0; i < kTile / 32; ++i) {
      step.tile_scales[i] = reinterpret_cast<const float4*>(from + kTileScalesAt)[i];
    }
    return step;
  }

  // The next `count` steps, 1 or 2. Between them a product is always running; none is left at the
  // end: ptxas serializes all products if it finds one in another round of a loop than the read of
  // its neighbour's registers. Scales are read before products: while those read shared memory it
  // serves others late.
  template <int count>
  __device__ void add_steps() {
    const Step first = enter();
    multiply<0>(first);
    multiply<1>(first);
    add<0, 1>(first);
    multiply<2>(first);
    add<1, 1>(first);
    multiply<3>(first);
    add<2, 1>(first);
    if constexpr (count == 1) {
      add<3, 0>(first);
    } else {
      const Step second = enter();
      multiply<0>(second);
      add<3, 1>(first);
      multiply<1>(second);
      add<0, 1>(second);
      multiply<2>(second);
      add<1, 1>(second);
      multiply<3>(second);
      add<2, 1>(second);
      add<3, 0>(second);
    }
  }

  template <int block>
  __device__ void multiply(const Step& step) {
    wgmma_fence();
    wgmma_fp8(products_[block % 2], advance_descriptor(step.x, block * 32),
              advance_descriptor(step.weight, block * 32), false);
    wgmma_commit();
  }

  // Waits for the block's products, while `pending` later ones run, and adds them.
  template <int block, int pending>
  __device__ void add(const Step& step) {
    const float first = block_scale(step.codes[0], block);
    const float second = block_scale(step.codes[1], block);
    float low[kTile / 32], high[kTile / 32];
#pragma unroll
    for (int i = 0; i < kTile / 32; ++i) {
      const float scale = at(step.tile_scales[i], block);
      low[i] = first * scale;
      high[i] = second * scale;
    }
    auto& products = products_[block % 2];
    wgmma_wait<pending>();
    wgmma_hold(products);
    // The stage may be filled again, here and in the other block.
    if (block == kStepBlocks - 1 && threadIdx.x % 32 < kCluster) {
      barrier_arrive_at(&shared_.empty[step.stage], threadIdx.x % 32);
    }
#pragma unroll
    for (int i = 0; i < kTile / 32; ++i) {
#pragma unroll
      for (int j = 16 * i; j < 16 * (i + 1); j += 4) {
        sums_[j] = add_block(sums_[j], products[j], low[i]);
        sums_[j + 1] = add_block(sums_[j + 1], products[j + 1], low[i]);
        sums_[j + 2] = add_block(sums_[j + 2], products[j + 2], high[i]);
        sums_[j + 3] = add_block(sums_[j + 3], products[j + 3], high[i]);
      }
    }
  }

  __device__ float4* totals() const { return reinterpret_cast<float4*>(shared_.output(group_)); }
  // The end of a chunk.
  __device__ void close(bool has_totals) {
    if (has_totals) add_totals(totals(), sums_);
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      totals()[i * 128 + threadIdx.x % 128] =
          float4{sums_[4 * i], sums_[4 * i + 1], sums_[4 * i + 2], sums_[4 * i + 3]};
    }
#pragma unroll
    for (float& sum : sums_) sum = 0;
  }

  const Many& p_;
  const Shared<kChunks>& shared_;
  const int group_;
  int stage_ = 0, parity_ = 0;
  float products_[2][kTile / 2];
  float sums_[kTile / 2];
};

template <bool kChunks>
__global__ void __launch_bounds__(kThreads, 1) multiply(const __grid_constant__ Many p) {
  extern __shared__ uint8_t shared[];
  const Shared<kChunks> in_shared(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Layout<kChunks>::kStages; ++i) {
      barrier_init(&in_shared.full[i], 1);
      barrier_init(&in_shared.empty[i], kCluster * kGroups * 4);
    }
    fence_barrier_init();
  }
  sync_cluster();
  wait_for_inputs();
  let_next_start();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < kGroups) {
    take_registers<240>();
    Consumer<kChunks>(p, in_shared, group).run();
  } else {
    give_registers<24>();
    if (threadIdx.x == kGroups * 128) produce(p, in_shared);
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
      .y = results_map(out, x.rows, weight.rows),
      .x_scales = x.scales,
      .scale_stride = static_cast<int>(x.scale_stride),
      .x_pairs = static_cast<int>((x_tiles + kCluster - 1) / kCluster),
      .weight_tiles = static_cast<int>((weight.rows + kTile - 1) / kTile),
      .cut = cut_fp8(weight.rows, weight.columns),
      .out = static_cast<int>(weight.rows),
      .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias)};
  const int clusters = std::min(p.x_pairs * p.weight_tiles, queue.multiprocessors() / kCluster);
  const bool chunks = p.cut.chunks > 1;
  launch(queue, "linear", chunks ? multiply<true> : multiply<false>,
         {.blocks = dim3(clusters * kCluster),
          .threads = kThreads,
          .shared_bytes = chunks ? Layout<true>::kSharedBytes : Layout<false>::kSharedBytes,
          .cluster = kCluster},
         p);
}

}  // namespace cachalot::cuda
