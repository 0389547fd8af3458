// Many rows of x (docs/kernels/dense_fp8.md). A block walks tiles of 64 rows of x per consumer
// warpgroup and 128 of the weight: one thread brings steps of 128 columns into a ring of stages.
// While a warpgroup adds a block of 32 columns' products to its sums, the tensor cores have those
// of the others. Two blocks of a cluster have the same rows of x: each brings half of them for
// both.
#include <algorithm>
#include <bit>

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/ptx/wgmma_fp8.h"

namespace cachalot::cuda {
namespace {

constexpr int kGroupRows = 64;  // of x, a warpgroup's
constexpr int kTile = 128;      // rows of the weight
constexpr int kTileBlocks = kTile / 32;
constexpr int kCluster = 2;          // blocks
constexpr int kTogetherRows = 1536;  // of x, whose tiles are walked together: as many of the weight
                                     // stay in L2 while blocks read them
constexpr int kSharedBytes = 227 << 10;

template <int kGroups, bool kChunks>
struct Layout {
  static constexpr int kRows = kGroups * kGroupRows;  // of x
  static constexpr int kXAt = 0, kWeightAt = kRows * kStepColumns;
  static constexpr int kTileScalesAt = kWeightAt + kTile * kStepColumns;
  static constexpr int kXScalesAt = kTileScalesAt + 128;
  static constexpr uint32_t kBytes =
      (kRows + kTile) * kStepColumns + kTileBlocks * kStepBlocks * 4 + kRows * sizeof(uint32_t);
  static constexpr int kStageBytes = kTileScalesAt + 1024;

  static constexpr int kThreads = (kGroups + 1) * 128;
  // Of a consumer's thread; a multiprocessor has 64K.
  static constexpr int kRegisters = kGroups == 3 ? 160 : 240;
  // The sums of the chunks before stay in registers, or lie where the output is put in the end.
  static constexpr bool kKeepsTotals = kChunks && kGroups == 2;

  static constexpr int kOutputBytes = kGroupRows * kTile * (kChunks && !kKeepsTotals ? 4 : 2);
  static constexpr int kStages = (kSharedBytes - 1024 - kGroups * kOutputBytes) / kStageBytes;
  static constexpr int kOutputAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kOutputAt + kGroups * kOutputBytes;
  static_assert(kXScalesAt + kRows * 4 <= kStageBytes && 2 * kStages * sizeof(Barrier) <= 1024);
};

struct ManyWeight {
  CUtensorMap weight, tile_scales, y;
  int out;
  const __nv_bfloat16* bias;
};

// The products of the same rows with one weight, or with two that are cut alike, one behind the
// other.
struct Many {
  ManyWeight weights[2];
  CUtensorMap x, x_scales;
  int rows;
  // Pairs of tiles of the weights: one per cluster.
  int x_tiles, first_pairs, weight_pairs, together;
  int steps, chunks_log;

  __device__ int steps_of(int chunk) const {
    return ((chunk + 1) * steps >> chunks_log) - (chunk * steps >> chunks_log);
  }
};

// The first row of x and of the weight of a cluster's n-th piece of work, for its block; and which
// weight.
template <int kGroups, bool kTwo>
struct Place {
  int x, weight, which = 0;

  __device__ Place(const Many& p, int work) {
    const int whole = p.together * p.weight_pairs;
    const int first = work / whole * p.together;
    const int together = min(p.together, p.x_tiles - first);
    const int rest = work % whole;
    const int block = static_cast<int>(blockIdx.x) % kCluster;
    x = (first + rest % together) * kGroups * kGroupRows;
    int pair = rest / together;
    if (kTwo && pair >= p.first_pairs) {
      pair -= p.first_pairs;
      which = 1;
    }
    weight = (pair * kCluster + block) * kTile;
  }
};

__device__ inline int first_work() { return static_cast<int>(blockIdx.x) / kCluster; }
__device__ inline int work_step() { return static_cast<int>(gridDim.x) / kCluster; }

template <int kGroups, bool kChunks>
struct Shared {
  using L = Layout<kGroups, kChunks>;
  uint8_t* stages;
  Barrier *full, *empty;

  __device__ explicit Shared(uint8_t* shared) {
    stages = shared;
    full = reinterpret_cast<Barrier*>(stages + L::kBarriersAt);
    empty = full + L::kStages;
  }
  __device__ uint8_t* stage(int index) const { return stages + index * L::kStageBytes; }
  // A consumer warpgroup's own.
  __device__ uint8_t* output(int group) const {
    return stages + L::kOutputAt + group * L::kOutputBytes;
  }
};

// One thread. A stage is empty when the consumers of both blocks have left it: halves of x go to
// both.
template <int kGroups, bool kChunks, bool kTwo>
__device__ inline void produce(const Many& p, const Shared<kGroups, kChunks>& s) {
  using L = Layout<kGroups, kChunks>;
  const int block = static_cast<int>(blockIdx.x) % kCluster;
  const int half = L::kRows / kCluster * block;
  int stage = 0, round = 0;
  for (int work = first_work(); work < p.x_tiles * p.weight_pairs; work += work_step()) {
    const Place<kGroups, kTwo> place(p, work);
    const ManyWeight& weight = p.weights[place.which];
    for (int step = 0; step < p.steps; ++step) {
      uint8_t* to = s.stage(stage);
      Barrier* full = &s.full[stage];
      if (round > 0) barrier_wait(&s.empty[stage], (round - 1) % 2);
      barrier_expect(full, L::kBytes);
      copy_box_to_blocks(to + L::kXAt + half * kStepColumns, p.x, step * kStepColumns,
                         place.x + half, full, (1 << kCluster) - 1);
      copy_box(to + L::kWeightAt, weight.weight, step * kStepColumns, place.weight, full);
      copy_box(to + L::kTileScalesAt, weight.tile_scales, step * kStepBlocks, place.weight / 32,
               full);
      copy_box(to + L::kXScalesAt, p.x_scales, place.x, step, full);
      if (++stage == L::kStages) {
        stage = 0;
        ++round;
      }
    }
  }
  // Consumers enter one step more than there are, without looking.
  if (round > 0) barrier_wait(&s.empty[stage], (round - 1) % 2);
  barrier_arrive(&s.full[stage]);
}

// Until the warpgroup's last output has been read.
__device__ inline void output_free(int group) {
  if (threadIdx.x % 128 == 0) wait_stores_read<0>();
  sync_threads_of(1 + group, 128);
}

template <int kGroups, bool kChunks, bool kTwo>
class Consumer {
  using L = Layout<kGroups, kChunks>;

 public:
  // `group` is the same in all threads of a warp, and known to be.
  __device__ Consumer(const Many& p, const Shared<kGroups, kChunks>& shared, int group)
      : p_(p),
        shared_(shared),
        group_(group),
        stages_(shared_descriptor(shared.stages, SharedLayout::swizzle_128, 1024)),
        empty_(address_in_block(shared.empty, threadIdx.x % kCluster)) {
    // The compiler must not know that all lanes read the same scales of tiles: it would move them
    // to uniform registers, and wait for them to do so.
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    tile_scales_ = shared.stages + L::kTileScalesAt + (lane >> 5);
    const int row = group * kGroupRows + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    x_scales_ = shared.stages + L::kXScalesAt + row * sizeof(uint32_t);
  }

  __device__ void run() {
    const int works = p_.x_tiles * p_.weight_pairs;
    enter();
#pragma unroll
    for (float& product : products_) product = 0;
    for (int work = first_work(); work < works; work += work_step()) {
      const Place<kGroups, kTwo> place(p_, work);
      const int row = place.x + group_ * kGroupRows;
      if (row >= p_.rows) {
        for (int step = p_.steps; step > 0; --step) pass();
        continue;
      }
      if constexpr (L::kKeepsTotals) {
#pragma unroll
        for (float& total : totals_) total = kNothing;
      }
      for (int chunk = 0; chunk >> p_.chunks_log == 0; ++chunk) {
        if (kChunks && chunk > 0) close(chunk);
        add_step<true>();
        for (int steps = p_.steps_of(chunk); steps > 1; --steps) add_step<false>();
      }
      if constexpr (kChunks) add_totals();
      if constexpr (kChunks && !L::kKeepsTotals) {
        sync_threads_of(1 + group_, 128);
      } else {
        output_free(group_);
      }
      const ManyWeight& weight = p_.weights[place.which];
      write_results<kTile>(
          weight.y, shared_.output(group_), row, place.weight, weight.out, weight.bias,
          [this] { sync_threads_of(1 + group_, 128); }, sums_);
    }
    if (threadIdx.x % 128 == 0) wait_stores<0>();
  }

 private:
  // Of a block of columns of an operand that lies `at` in a stage.
  __device__ uint64_t operand(int at, int block) const {
    return advance_descriptor(stages_, entered_ * L::kStageBytes) +
           static_cast<uint64_t>((at >> 4) + block * 2);
  }

  // Waits for the next stage and reads what its first blocks need.
  __device__ void enter() {
    entered_ = next_;
    barrier_wait(&shared_.full[next_], parity_);
    if (++next_ == L::kStages) {
      next_ = 0;
      parity_ ^= 1;
    }
    const uint8_t* codes = x_scales_ + entered_ * L::kStageBytes;
    codes_[0] = *reinterpret_cast<const uint32_t*>(codes);
    codes_[1] = *reinterpret_cast<const uint32_t*>(codes + 8 * sizeof(uint32_t));
    step_scales_ = tile_scales_ + entered_ * L::kStageBytes;
    read_tile_scales(0);
  }

  // The stage may be filled again, here and in the other block.
  __device__ void leave(int stage) const {
    if (threadIdx.x % 32 < kCluster) barrier_arrive_at_address(empty_ + stage * sizeof(Barrier));
  }

  __device__ void pass() {
    const int stage = entered_;
    enter();
    leave(stage);
  }

  // Of two blocks.
  __device__ void read_tile_scales(int block) {
    const auto* scales = reinterpret_cast<const float2*>(step_scales_ + block * sizeof(float));
#pragma unroll
    for (int i = 0; i < kTileBlocks; ++i) scales_[i] = scales[i * kStepBlocks / 2];
  }

  // kFirst: the first step of a chunk, whose sums are not there yet.
  template <bool kFirst>
  __device__ void add_step() {
    add<0, kFirst>();
    add<1, false>();
    add<2, false>();
    add<3, false>();
  }

  // A block of the entered step; behind the last one the next step is entered. What the next blocks
  // need of shared memory is read here: the tensor cores, which are never idle, let such reads
  // wait.
  template <int block, bool kFirst>
  __device__ void add() {
    float low[kTileBlocks], high[kTileBlocks];
    const float first = block_scale(codes_[0], block), second = block_scale(codes_[1], block);
#pragma unroll
    for (int i = 0; i < kTileBlocks; ++i) {
      const float scale = block % 2 == 0 ? scales_[i].x : scales_[i].y;
      low[i] = first * scale;
      high[i] = second * scale;
    }
    wgmma_fence();
    wgmma_fp8(products_, operand(L::kXAt + group_ * kGroupRows * kStepColumns, block),
              operand(L::kWeightAt, block), false);
    wgmma_commit();
    // So that what they are made of is free for what is read next.
    wgmma_hold(low);
    wgmma_hold(high);
    const int stage = entered_;
    if constexpr (block == 1) read_tile_scales(2);
    if constexpr (block == kStepBlocks - 1) enter();
    wgmma_wait<0>();
    wgmma_hold(products_);
    if constexpr (block == kStepBlocks - 1) leave(stage);
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      sums_[i] =
          add_block(kFirst ? 0.0f : sums_[i], products_[i], i % 4 < 2 ? low[i / 16] : high[i / 16]);
    }
  }

  // The end of a chunk, whose sums are added to those of the chunks before: in registers where
  // there are enough, else in shared memory, a thread's as float4s at 128 of them apart.
  __device__ void close(int chunk) {
    if constexpr (L::kKeepsTotals) {
#pragma unroll
      for (int i = 0; i < kTile / 2; ++i) totals_[i] += sums_[i];
    } else {
      if (chunk == 1) {
        output_free(group_);
      } else {
        add_totals();
      }
#pragma unroll
      for (int i = 0; i < kTile / 8; ++i) {
        stored_totals()[i * 128] =
            float4{sums_[4 * i], sums_[4 * i + 1], sums_[4 * i + 2], sums_[4 * i + 3]};
      }
    }
  }

  // sums = totals + sums
  __device__ void add_totals() {
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      float four[4];
      if constexpr (L::kKeepsTotals) {
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] = totals_[4 * i + j];
      } else {
        *reinterpret_cast<float4*>(four) = stored_totals()[i * 128];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[4 * i + j] += four[j];
    }
  }
  __device__ float4* stored_totals() const {
    return reinterpret_cast<float4*>(shared_.output(group_)) + threadIdx.x % 128;
  }

  const Many& p_;
  const Shared<kGroups, kChunks>& shared_;
  const int group_;
  const uint64_t stages_;                   // a descriptor of the first
  const uint32_t empty_;                    // the first stage's, in the block that this lane tells
  const uint8_t *x_scales_, *tile_scales_;  // in the first stage
  int next_ = 0, parity_ = 0;
  // The step that was entered: its stage, the scales this thread needs.
  int entered_;
  const uint8_t* step_scales_;
  uint32_t codes_[2];
  float2 scales_[kTileBlocks];  // of tiles, of two blocks
  float products_[kTile / 2];
  float sums_[kTile / 2];
  float totals_[L::kKeepsTotals ? kTile / 2 : 1];
};

template <int kGroups, bool kChunks, bool kTwo>
__global__ void __launch_bounds__(Layout<kGroups, kChunks>::kThreads, 1)
    multiply(const __grid_constant__ Many p) {
  using L = Layout<kGroups, kChunks>;
  // As swizzled boxes lie. Known to be aligned, addresses in it are made of fewer instructions.
  extern __shared__ __align__(1024) uint8_t shared[];
  const Shared<kGroups, kChunks> in_shared(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      barrier_init(&in_shared.full[i], 1);
      barrier_init(&in_shared.empty[i], kCluster * kGroups * 4);
    }
    fence_barrier_init();
  }
  sync_cluster();
  wait_for_inputs();
  let_next_start();
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (group < kGroups) {
    take_registers<L::kRegisters>();
    Consumer<kGroups, kChunks, kTwo>(p, in_shared, group).run();
  } else {
    give_registers<24>();
    if (threadIdx.x == kGroups * 128) produce<kGroups, kChunks, kTwo>(p, in_shared);
  }
  sync_cluster();
}

int tile_pairs(const DenseMatrix& weight) {
  const int64_t tiles = (weight.rows + kTile - 1) / kTile;
  return static_cast<int>((tiles + kCluster - 1) / kCluster);
}

ManyWeight weight_of(const Fp8Product& product, int64_t rows) {
  const DenseMatrix& weight = product.weight;
  return {.weight = codes_map(weight.codes.data, weight.rows, weight.columns, kTile),
          .tile_scales = tile_scales_map(weight, kTileBlocks),
          .y = results_map(product.out, rows, weight.rows),
          .out = static_cast<int>(weight.rows),
          .bias = reinterpret_cast<const __nv_bfloat16*>(product.out.bias)};
}

// `second`: nullptr where there is one.
template <int kGroups, bool kChunks, bool kTwo>
void start(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
           const Fp8Product* second) {
  using L = Layout<kGroups, kChunks>;
  const Fp8Cut cut = cut_fp8(first.weight.rows, first.weight.columns);
  Many p{.weights = {weight_of(first, x.rows)},
         .x = codes_map(x.codes, x.rows, x.columns, L::kRows / kCluster),
         .x_scales = row_scales_map(x, L::kRows),
         .rows = static_cast<int>(x.rows),
         .x_tiles = static_cast<int>((x.rows + L::kRows - 1) / L::kRows),
         .first_pairs = tile_pairs(first.weight),
         .weight_pairs = tile_pairs(first.weight),
         .together = kTogetherRows / L::kRows,
         .steps = cut.steps,
         .chunks_log = std::countr_zero(static_cast<unsigned>(cut.chunks))};
  if constexpr (kTwo) {
    p.weights[1] = weight_of(*second, x.rows);
    p.weight_pairs += tile_pairs(second->weight);
  }
  const int clusters = std::min(p.x_tiles * p.weight_pairs, queue.multiprocessors() / kCluster);
  launch(queue, "linear", multiply<kGroups, kChunks, kTwo>,
         {.blocks = dim3(clusters * kCluster),
          .threads = L::kThreads,
          .shared_bytes = kSharedBytes,
          .cluster = kCluster},
         p);
}

// `rows` of the weight, which is cut into several chunks or not.
int groups_of(Queue& queue, const QuantizedRows& x, int64_t rows, bool chunks) {
  return many_fp8_groups(x.rows, rows, chunks, queue.multiprocessors());
}

}  // namespace

void multiply_fp8_many(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                       const Fp8Output& out) {
  const Fp8Product product{weight, out};
  const bool chunks = cut_fp8(weight.rows, weight.columns).chunks > 1;
  if (groups_of(queue, x, weight.rows, chunks) == 3) {
    (chunks ? start<3, true, false> : start<3, false, false>)(queue, x, product, nullptr);
  } else {
    (chunks ? start<2, true, false> : start<2, false, false>)(queue, x, product, nullptr);
  }
}

bool multiply_fp8_many_pair(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
                            const Fp8Product& second) {
  const auto chunks = [](const Fp8Product& product) {
    return cut_fp8(product.weight.rows, product.weight.columns).chunks;
  };
  if (chunks(first) == 1 || chunks(first) != chunks(second)) return false;
  const int groups = groups_of(queue, x, first.weight.rows + second.weight.rows, true);
  (groups == 3 ? start<3, true, true> : start<2, true, true>)(queue, x, first, &second);
  return true;
}

}  // namespace cachalot::cuda
