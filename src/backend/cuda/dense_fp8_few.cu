// Few rows of x (docs/kernels/dense_fp8.md). A block walks units: a tile of 128 weight rows, one
// chunk of its columns, 8 to 64 rows of x. One thread brings steps of 128 columns into a ring of
// stages; each consumer warpgroup multiplies 64 of the weight rows.
#include <algorithm>

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/wgmma_fp8.h"
#include "backend/cuda/quantize_fp8.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kGroups = 2;  // consumer warpgroups, 64 weight rows each
constexpr int kThreads = kGroups * 128 + 32;
constexpr int kWeightBytes = kFewTileRows * kStepColumns;
constexpr size_t kSharedBytes = size_t{222} << 10;
// Of a chunk whose columns of x a block can keep: 8 rows take 1 KB a step. The longest of a
// released weight has 40.
constexpr int kMaxKeptSteps = 40;
// Rows times steps that a block quantizes sooner than a kernel for it would have run: 80 gained 2
// us (wq_b), 128 lost half of one (engram), 320 lost 3 (main_proj).
constexpr int64_t kMaxQuantized = 96;

struct Few {
  CUtensorMap weight, tile_scales, x;
  const uint4* x_values;     // [tokens, columns] BF16, where the kernel quantizes; or, quantized:
  const uint32_t* x_scales;  // QuantizedRows::scales
  int scale_stride;
  int columns;
  int tokens, out;
  Fp8Cut cut;
  int tiles, units;
  CacheHint hint;     // of the weight: read once, or again by the next rows of x
  float* partial;     // [units, sums of a unit], where there are chunks
  int32_t* arrivals;  // per tile and group of tokens
  __nv_bfloat16* y;
  const __nv_bfloat16* bias;
};

// Where a unit lies. Chunks of a tile are neighbours: their sums are added soon.
struct Unit {
  int tile, chunk, group;

  __device__ Unit(const Few& p, int unit) : chunk(unit % p.cut.chunks) {
    const int rest = unit / p.cut.chunks;
    tile = rest % p.tiles;
    group = rest / p.tiles;
  }
};

// The steps of this block, one after the other. Divisions are once a unit: the one thread that
// brings steps has no others to hide them behind.
struct Walk {
  int unit, step, end, first_row, first_token;

  template <class Layout>
  __device__ Walk(const Few& p, Layout layout) : unit(static_cast<int>(blockIdx.x)) {
    enter(p, layout);
  }
  __device__ bool done(const Few& p) const { return unit >= p.units; }
  template <class Layout>
  __device__ void next(const Few& p, Layout layout) {
    if (++step < end) return;
    unit += static_cast<int>(gridDim.x);
    enter(p, layout);
  }

 private:
  template <class Layout>
  __device__ void enter(const Few& p, Layout) {
    const Unit where(p, unit);
    step = p.cut.first_step(where.chunk);
    end = p.cut.first_step(where.chunk + 1);
    first_row = where.tile * kFewTileRows;
    first_token = where.group * Layout::kTokens;
  }
};

// With kQuantizes the block quantizes a chunk's columns of x itself, and keeps them: one kernel
// less to wait for. Else x comes with the weight's steps.
template <int kTokens_, bool kQuantizes>
struct Layout {
  static constexpr int kTokens = kTokens_;
  static constexpr int kTokenBytes = kTokens * kStepColumns;
  static constexpr int kTileScalesAt = kWeightBytes + (kQuantizes ? 0 : kTokenBytes);
  static constexpr int kTokenScalesAt = kTileScalesAt + 128;
  static constexpr int kStageBytes = kTileScalesAt + 1024;
  static constexpr int kKeptStep = kTokenBytes + kTokens * static_cast<int>(sizeof(uint32_t));
  static constexpr int kKeptBytes = kQuantizes ? kMaxKeptSteps * kKeptStep : 0;
  static constexpr int kStages = (static_cast<int>(kSharedBytes) - 2048 - kKeptBytes) / kStageBytes;
  static constexpr uint32_t kBytes = kTileScalesAt +
                                     kFewTileRows / 32 * kStepBlocks * sizeof(float) +
                                     (kQuantizes ? 0 : kTokens * sizeof(uint32_t));
};

template <int kTokens, bool kQuantizes>
class Block {
  using L = Layout<kTokens, kQuantizes>;

 public:
  __device__ Block(const Few& p, uint8_t* shared) : p_(p) {
    const uint32_t at = shared_address(shared);
    stages_ = shared + (1024 - at % 1024) % 1024;
    kept_ = stages_ + L::kStages * L::kStageBytes;
    kept_scales_ = reinterpret_cast<uint32_t*>(kept_ + (L::kKeptBytes > 0 ? kMaxKeptSteps : 0) *
                                                           L::kTokenBytes);
    full_ = reinterpret_cast<Barrier*>(kept_ + L::kKeptBytes);
    empty_ = full_ + L::kStages;
    last_ = reinterpret_cast<int*>(empty_ + L::kStages);
  }

  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < L::kStages; ++i) {
        barrier_init(&full_[i], 1);
        barrier_init(&empty_[i], kGroups * 4);
      }
      fence_barrier_init();
    }
    __syncthreads();
  }

  // One thread. What of the weight fits into the stages is under way before x is there.
  __device__ void produce() const {
    const L layout;
    int ahead = 0;
    for (Walk walk(p_, layout); !walk.done(p_) && ahead < L::kStages; walk.next(p_, layout)) {
      bring_weight(walk, ahead++);
    }
    // Only weights, if x is not brought here.
    if (!kQuantizes) wait_for_inputs();
    int stage = 0, round = 0;
    for (Walk walk(p_, layout); !walk.done(p_); walk.next(p_, layout)) {
      if (round > 0) {
        barrier_wait(&empty_[stage], (round - 1) % 2);
        bring_weight(walk, stage);
      }
      if (!kQuantizes) bring_x(walk, stage);
      if (++stage == L::kStages) {
        stage = 0;
        ++round;
      }
    }
  }

  __device__ void consume(int group) const {
    wait_for_inputs();
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32;
    const int quad = thread % 4;
    int stage = 0, parity = 0, kept_chunk = -1;
    for (int unit = static_cast<int>(blockIdx.x); unit < p_.units;
         unit += static_cast<int>(gridDim.x)) {
      const Unit where(p_, unit);
      const int steps = p_.cut.first_step(where.chunk + 1) - p_.cut.first_step(where.chunk);
      if (kQuantizes && where.chunk != kept_chunk) {
        kept_chunk = where.chunk;
        quantize(p_.cut.first_step(where.chunk), steps);
      }
      float sums[kTokens / 2] = {};
      for (int step = 0; step < steps; ++step) {
        const uint8_t* from = stages_ + stage * L::kStageBytes;
        barrier_wait(&full_[stage], parity);
        const uint64_t weight =
            shared_descriptor(from + group * 64 * kStepColumns, SharedLayout::swizzle_128, 1024);
        const uint64_t x =
            shared_descriptor(kQuantizes ? kept_ + step * L::kTokenBytes : from + kWeightBytes,
                              SharedLayout::swizzle_128, 1024);
        // Before the products: while they read shared memory it serves nobody else.
        const float4 tile_scales =
            reinterpret_cast<const float4*>(from + L::kTileScalesAt)[group * 2 + warp / 2];
        const auto* x_scales = reinterpret_cast<const uint2*>(
            kQuantizes ? reinterpret_cast<const uint8_t*>(kept_scales_ + step * kTokens)
                       : from + L::kTokenScalesAt);
        uint2 codes[kTokens / 8];
#pragma unroll
        for (int j = 0; j < kTokens / 8; ++j) {
          codes[j] = x_scales[4 * j + quad];
        }
        // One block's products are added while the next one's are in the tensor cores.
        float products[2][kTokens / 2];
        const auto multiply = [&](int block) {
          wgmma_fence();
          wgmma_fp8(products[block % 2], advance_descriptor(weight, block * 32),
                    advance_descriptor(x, block * 32), false);
          wgmma_commit();
        };
        const auto add = [&](int block) {
          wgmma_hold(products[block % 2]);
#pragma unroll
          for (int j = 0; j < kTokens / 8; ++j) {
            const float low = block_scale(codes[j].x, block) * at(tile_scales, block);
            const float high = block_scale(codes[j].y, block) * at(tile_scales, block);
            const float* d = &products[block % 2][4 * j];
            float* sum = &sums[4 * j];
            sum[0] = add_block(sum[0], d[0], low);
            sum[1] = add_block(sum[1], d[1], high);
            sum[2] = add_block(sum[2], d[2], low);
            sum[3] = add_block(sum[3], d[3], high);
          }
        };
        multiply(0);
        multiply(1);
        wgmma_wait<1>();
        add(0);
        multiply(2);
        wgmma_wait<1>();
        add(1);
        multiply(3);
        wgmma_wait<1>();
        add(2);
        wgmma_wait<0>();
        if (thread % 32 == 0) barrier_arrive(&empty_[stage]);
        add(3);
        if (++stage == L::kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      finish(where, unit, group, sums);
    }
  }

 private:
  __device__ void bring_weight(const Walk& walk, int stage) const {
    uint8_t* at_stage = stages_ + stage * L::kStageBytes;
    barrier_expect(&full_[stage], L::kBytes);
    copy_box(at_stage, p_.weight, walk.step * kStepColumns, walk.first_row, &full_[stage], p_.hint);
    copy_box(at_stage + L::kTileScalesAt, p_.tile_scales, walk.step * kStepBlocks,
             walk.first_row / 32, &full_[stage]);
  }
  __device__ void bring_x(const Walk& walk, int stage) const {
    uint8_t* at_stage = stages_ + stage * L::kStageBytes;
    copy_box(at_stage + kWeightBytes, p_.x, walk.step * kStepColumns, walk.first_token,
             &full_[stage], CacheHint::evict_last);
    copy_bulk(at_stage + L::kTokenScalesAt,
              p_.x_scales + walk.step * p_.scale_stride + walk.first_token,
              kTokens * sizeof(uint32_t), &full_[stage], CacheHint::evict_last);
  }

  // Keeps `steps` steps of x from `first` on, as the copy engine would have brought them. All
  // consumers take part: 8 columns each, four neighbours a group.
  __device__ void quantize(int first, int steps) const {
    constexpr int kAhead = 4;  // loads of a thread before the first is used
    // Rows that x does not have stay what they are: their results are not stored.
    const int per_row = steps * (kStepColumns / 8), count = p_.tokens * per_row;
    const int row_loads = p_.columns / 8, first_load = first * (kStepColumns / 8);
    meet();
    for (int begin = 0; begin < count; begin += kAhead * kGroups * 128) {
      uint4 packed[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int item = begin + i * kGroups * 128 + static_cast<int>(threadIdx.x);
        const int token = item / per_row;
        packed[i] =
            item < count ? p_.x_values[token * row_loads + first_load + item % per_row] : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int item = begin + i * kGroups * 128 + static_cast<int>(threadIdx.x);
        const EightCodes eight = quantize_eight(packed[i]);
        if (item >= count) continue;
        const int token = item / per_row, column = item % per_row * 8;
        const int step = column / kStepColumns, in_step = column % kStepColumns;
        *reinterpret_cast<uint2*>(kept_ + step * L::kTokenBytes + token * kStepColumns +
                                  (in_step / 16 ^ token % 8) * 16 + in_step % 16) = eight.codes;
        if (in_step % 32 == 0) {
          reinterpret_cast<uint8_t*>(&kept_scales_[step * kTokens + token])[in_step / 32] =
              static_cast<uint8_t>(eight.scale);
        }
      }
    }
    fence_shared_for_async();
    meet();
  }

  // The consumers of a block meet.
  __device__ static void meet() { sync_threads_of(1, kGroups * 128); }
  // Whether this block is the last of `count` to come here. What the others wrote before is then
  // visible.
  __device__ bool last_of(int32_t* arrivals, int count) const {
    meet();
    if (threadIdx.x == 0) {
      __threadfence();
      *last_ = atomicAdd(arrivals, 1) == count - 1;
      if (*last_) *arrivals = 0;
      __threadfence();
    }
    meet();
    return *last_;
  }

  // Registers 4 * j ... of the sums.
  __device__ void write(const Unit& where, int group, int j, float a, float b, float c,
                        float d) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int first_row =
        where.tile * kFewTileRows + group * 64 + thread / 32 * 16 + thread % 32 / 4;
    const int first_token = where.group * kTokens + j * 8 + thread % 4 * 2;
    const float sums[4] = {a, b, c, d};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + i / 2 * 8, token = first_token + i % 2;
      if (row >= p_.out || token >= p_.tokens) continue;
      p_.y[int64_t{token} * p_.out + row] = __float2bfloat16_rn(with_bias(sums[i], p_.bias, row));
    }
  }

  __device__ void finish(const Unit& where, int unit, int group,
                         const float (&sums)[kTokens / 2]) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    if (p_.cut.chunks > 1) {
      // Sums in the order of registers and threads: what is written together is read together.
      constexpr int kQuads = kTokens / 8, kTogether = 8;
      const auto part = [&](int of_unit) {
        return reinterpret_cast<float4*>(p_.partial) +
               (int64_t{of_unit} * kGroups + group) * kQuads * 128 + thread;
      };
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        __stcg(part(unit) + j * 128,
               float4{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
      }
      if (!last_of(&p_.arrivals[where.group * p_.tiles + where.tile], p_.cut.chunks)) return;
      const int first = unit - where.chunk;
#pragma unroll 1
      for (int j = 0; j < kQuads; ++j) {
        float4 sum = {kNothing, kNothing, kNothing, kNothing};
        for (int chunk = 0; chunk < p_.cut.chunks; chunk += kTogether) {
          // All on their way before the first is added.
          float4 parts[kTogether];
#pragma unroll
          for (int i = 0; i < kTogether; ++i) {
            if (chunk + i < p_.cut.chunks) parts[i] = __ldcg(part(first + chunk + i) + j * 128);
          }
#pragma unroll
          for (int i = 0; i < kTogether; ++i) {
            if (chunk + i >= p_.cut.chunks) break;
            sum.x += parts[i].x;
            sum.y += parts[i].y;
            sum.z += parts[i].z;
            sum.w += parts[i].w;
          }
        }
        write(where, group, j, sum.x, sum.y, sum.z, sum.w);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        write(where, group, j, sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
      }
    }
  }

  const Few& p_;
  uint8_t *stages_, *kept_;
  uint32_t* kept_scales_;  // [steps, kTokens]
  Barrier *full_, *empty_;
  int* last_;
};

template <int kTokens, bool kQuantizes>
__global__ void __launch_bounds__(kThreads, 1) multiply(const __grid_constant__ Few p) {
  extern __shared__ uint8_t shared[];
  const Block<kTokens, kQuantizes> block(p, shared);
  block.start();
  let_next_start();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < kGroups) {
    block.consume(group);
  } else if (threadIdx.x % 32 == 0) {
    block.produce();
  } else {
    wait_for_inputs();
  }
}

// x_values where kQuantizes, else x.
template <int kTokens, bool kQuantizes = false>
void start(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x_values,
           const QuantizedRows& x, const Fp8Output& out) {
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const auto tiles = static_cast<int>((weight.rows + kFewTileRows - 1) / kFewTileRows);
  const auto groups = static_cast<int>((x.rows + kTokens - 1) / kTokens);
  const int units = tiles * cut.chunks * groups;
  CACHALOT_CHECK(tiles * groups <= Queue::kCounters, "{} tiles, {} groups", tiles, groups);
  Few p{.weight = codes_map(weight.codes.data, weight.rows, weight.columns, kFewTileRows),
        .tile_scales = tile_scales_map(weight, kFewTileRows / 32),
        .x_values = reinterpret_cast<const uint4*>(x_values),
        .x_scales = x.scales,
        .scale_stride = static_cast<int>(x.scale_stride),
        .columns = static_cast<int>(x.columns),
        .tokens = static_cast<int>(x.rows),
        .out = static_cast<int>(weight.rows),
        .cut = cut,
        .tiles = tiles,
        .units = units,
        .hint = groups == 1 ? CacheHint::evict_first : CacheHint::evict_normal,
        .arrivals = queue.counters(),
        .y = reinterpret_cast<__nv_bfloat16*>(out.y),
        .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias)};
  if (!kQuantizes) p.x = codes_map(x.codes, x.rows, x.columns, kTokens);
  if (cut.chunks > 1) {
    p.partial = scratch.allocate<float>(int64_t{units} * kFewTileRows * kTokens);
  }
  launch(queue, "linear", multiply<kTokens, kQuantizes>,
         {.blocks = dim3(std::min(units, queue.multiprocessors())),
          .threads = kThreads,
          .shared_bytes = kSharedBytes},
         p);
}

}  // namespace

void multiply_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight,
                      const QuantizedRows& x, const Fp8Output& out) {
  if (x.rows <= 8) return start<8>(queue, scratch, weight, nullptr, x, out);
  if (x.rows <= 16) return start<16>(queue, scratch, weight, nullptr, x, out);
  if (x.rows <= 32) return start<32>(queue, scratch, weight, nullptr, x, out);
  start<64>(queue, scratch, weight, nullptr, x, out);
}

bool quantizes_itself(const DenseMatrix& weight, int64_t rows) {
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const int64_t steps = (cut.steps + cut.chunks - 1) / cut.chunks;
  return rows <= 8 && steps <= kMaxKeptSteps && rows * steps <= kMaxQuantized;
}

void linear_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x,
                    int64_t rows, const Fp8Output& out) {
  start<8, true>(queue, scratch, weight, x, {.rows = rows, .columns = weight.columns}, out);
}

}  // namespace cachalot::cuda
