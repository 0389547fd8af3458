// Few rows of x (docs/kernels/dense_fp8.md). A block walks units: the tile of 64 weight rows, one
// chunk of its columns, 8 to 64 rows of x. One warp brings steps of 128 columns into a ring of
// stages; each consumer warpgroup multiplies them with its rows of x.
#include <algorithm>

#include "backend/cuda/dense_fp8_parts.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/wgmma_fp8.h"
#include "backend/cuda/row_norm.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kWeightBytes = kFewTileRows * kStepColumns;
constexpr size_t kSharedBytes = size_t{222} << 10;

struct Few {
  CUtensorMap weight, tile_scales, x;
  const uint32_t* x_scales;  // QuantizedRows::scales
  int scale_stride;
  int tokens, out;
  Fp8Cut cut;
  int tiles, units;
  float* partial;     // [units, sums of a unit], where there are chunks
  int32_t* arrivals;  // per tile and group of tokens; one more for norms
  __nv_bfloat16* y;
  const __nv_bfloat16 *bias, *norm;
  float norm_eps;
};

// Where a unit lies. Chunks of a tile are neighbours: their sums are added soon.
struct Unit {
  int tile, chunk, group;

  __device__ Unit(const Few& p, int unit)
      : tile(unit / p.cut.chunks % p.tiles),
        chunk(unit % p.cut.chunks),
        group(unit / p.cut.chunks / p.tiles) {}
};

// The steps of this block, one after the other.
struct Walk {
  int unit, step, end;

  __device__ explicit Walk(const Few& p) : unit(static_cast<int>(blockIdx.x)) { enter(p); }
  __device__ bool done(const Few& p) const { return unit >= p.units; }
  __device__ void next(const Few& p) {
    if (++step < end) return;
    unit += static_cast<int>(gridDim.x);
    enter(p);
  }

 private:
  __device__ void enter(const Few& p) {
    const int chunk = unit % p.cut.chunks;
    step = p.cut.first_step(chunk);
    end = p.cut.first_step(chunk + 1);
  }
};

template <int kWidth, int kGroups>
struct Layout {
  static constexpr int kTokens = kWidth * kGroups;
  static constexpr int kTokenBytes = kTokens * kStepColumns;
  static constexpr int kTileScalesAt = kWeightBytes + kTokenBytes;
  static constexpr int kTokenScalesAt = kTileScalesAt + 128;
  static constexpr int kStageBytes = kTileScalesAt + 1024;
  static constexpr int kTileScaleBytes = 2 * kStepBlocks * 4;
  static constexpr int kStages = (static_cast<int>(kSharedBytes) - 2048) / kStageBytes;
  static constexpr uint32_t kBytes =
      kWeightBytes + kTokenBytes + kTileScaleBytes + kTokens * sizeof(uint32_t);
  static constexpr int kThreads = kGroups * 128 + 32;
};

template <int kWidth, int kGroups>
class Block {
  using L = Layout<kWidth, kGroups>;

 public:
  __device__ Block(const Few& p, uint8_t* shared) : p_(p) {
    const uint32_t at = shared_address(shared);
    stages_ = shared + (1024 - at % 1024) % 1024;
    full_ = reinterpret_cast<Barrier*>(stages_ + L::kStages * L::kStageBytes);
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
    int ahead = 0;
    for (Walk walk(p_); !walk.done(p_) && ahead < L::kStages; walk.next(p_)) {
      bring_weight(walk, ahead++);
    }
    wait_for_inputs();
    int use = 0;
    for (Walk walk(p_); !walk.done(p_); walk.next(p_), ++use) {
      if (use >= L::kStages) {
        barrier_wait(&empty_[use % L::kStages], (use / L::kStages - 1) % 2);
        bring_weight(walk, use % L::kStages);
      }
      bring_x(walk, use % L::kStages);
    }
  }

  __device__ void consume(int group) const {
    wait_for_inputs();
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32;
    const int quad = thread % 4;
    int use = 0;
    for (int unit = static_cast<int>(blockIdx.x); unit < p_.units;
         unit += static_cast<int>(gridDim.x)) {
      const Unit where(p_, unit);
      const int steps = p_.cut.first_step(where.chunk + 1) - p_.cut.first_step(where.chunk);
      float sums[kWidth / 2] = {};
      for (int step = 0; step < steps; ++step, ++use) {
        const int stage = use % L::kStages;
        const uint8_t* at_stage = stages_ + stage * L::kStageBytes;
        barrier_wait(&full_[stage], use / L::kStages % 2);
        const uint64_t weight = shared_descriptor(at_stage, SharedLayout::swizzle_128, 1024);
        const uint64_t x =
            shared_descriptor(at_stage + kWeightBytes + group * kWidth * kStepColumns,
                              SharedLayout::swizzle_128, 1024);
        float products[kStepBlocks][kWidth / 2];
        wgmma_fence();
#pragma unroll
        for (int block = 0; block < kStepBlocks; ++block) {
          wgmma_fp8(products[block], advance_descriptor(weight, block * 32),
                    advance_descriptor(x, block * 32), false);
        }
        wgmma_commit();
        const float4 tile_scales =
            reinterpret_cast<const float4*>(at_stage + L::kTileScalesAt)[warp / 2];
        uint2 codes[kWidth / 8];
#pragma unroll
        for (int j = 0; j < kWidth / 8; ++j) {
          codes[j] = reinterpret_cast<const uint2*>(
              at_stage + L::kTokenScalesAt)[(group * kWidth + 8 * j) / 2 + quad];
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < kStepBlocks; ++block) wgmma_hold(products[block]);
        if (thread % 32 == 0) barrier_arrive(&empty_[stage]);
#pragma unroll
        for (int block = 0; block < kStepBlocks; ++block) {
#pragma unroll
          for (int j = 0; j < kWidth / 8; ++j) {
            const float low = block_scale(codes[j].x, block) * at(tile_scales, block);
            const float high = block_scale(codes[j].y, block) * at(tile_scales, block);
            const float* d = &products[block][4 * j];
            float* sum = &sums[4 * j];
            sum[0] = add_block(sum[0], d[0], low);
            sum[1] = add_block(sum[1], d[1], high);
            sum[2] = add_block(sum[2], d[2], low);
            sum[3] = add_block(sum[3], d[3], high);
          }
        }
      }
      finish(where, unit, group, sums);
    }
  }

 private:
  __device__ void bring_weight(const Walk& walk, int stage) const {
    const Unit where(p_, walk.unit);
    uint8_t* at_stage = stages_ + stage * L::kStageBytes;
    barrier_expect(&full_[stage], L::kBytes);
    copy_box(
        at_stage, p_.weight, walk.step * kStepColumns, where.tile * kFewTileRows, &full_[stage],
        p_.tiles * p_.cut.chunks == p_.units ? CacheHint::evict_first : CacheHint::evict_normal);
    copy_box(at_stage + L::kTileScalesAt, p_.tile_scales, walk.step * kStepBlocks,
             where.tile * (kFewTileRows / 32), &full_[stage]);
  }
  __device__ void bring_x(const Walk& walk, int stage) const {
    const Unit where(p_, walk.unit);
    uint8_t* at_stage = stages_ + stage * L::kStageBytes;
    copy_box(at_stage + kWeightBytes, p_.x, walk.step * kStepColumns, where.group * L::kTokens,
             &full_[stage], CacheHint::evict_last);
    copy_bulk(at_stage + L::kTokenScalesAt,
              p_.x_scales + int64_t{walk.step} * p_.scale_stride + where.group * L::kTokens,
              L::kTokens * sizeof(uint32_t), &full_[stage], CacheHint::evict_last);
  }

  // The consumers of a block meet.
  __device__ static void meet() { sync_threads_of(1, kGroups * 128); }
  // Whether this block is the last of `count` to come here. What the others wrote before is then
  // visible.
  __device__ bool last_of(int32_t* arrivals, int count) const {
    __threadfence();
    meet();
    if (threadIdx.x == 0) {
      *last_ = atomicAdd(arrivals, 1) == count - 1;
      if (*last_) *arrivals = 0;
      __threadfence();
    }
    meet();
    const bool last = *last_;
    meet();
    return last;
  }

  __device__ void finish(const Unit& where, int unit, int group, float (&sums)[kWidth / 2]) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    if (p_.cut.chunks > 1) {
      // Sums in the order of registers and threads: what is written together is read together.
      constexpr int kQuads = kWidth / 8;
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
#pragma unroll
      for (float& sum : sums) sum = kNothing;
      const int first = unit - where.chunk;
#pragma unroll 4
      for (int chunk = 0; chunk < p_.cut.chunks; ++chunk) {
#pragma unroll
        for (int j = 0; j < kQuads; ++j) {
          const float4 more = __ldcg(part(first + chunk) + j * 128);
          sums[4 * j] += more.x;
          sums[4 * j + 1] += more.y;
          sums[4 * j + 2] += more.z;
          sums[4 * j + 3] += more.w;
        }
      }
    }
    const int first_row = where.tile * kFewTileRows + thread / 32 * 16 + thread % 32 / 4;
    const int first_token = where.group * L::kTokens + group * kWidth + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      const int row = first_row + i / 2 % 2 * 8, token = first_token + i / 4 * 8 + i % 2;
      if (row >= p_.out || token >= p_.tokens) continue;
      p_.y[int64_t{token} * p_.out + row] = __float2bfloat16_rn(with_bias(sums[i], p_.bias, row));
    }
    // The last block to finish a tile has all of a row before it.
    if (p_.norm == nullptr) return;
    int32_t* finished = &p_.arrivals[p_.units / p_.cut.chunks + where.group];
    if (!last_of(finished, p_.tiles)) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int end = min(p_.tokens, (where.group + 1) * L::kTokens);
    for (int token = where.group * L::kTokens + warp; token < end; token += kGroups * 4) {
      normalize_row(p_.y + int64_t{token} * p_.out, p_.norm, p_.out, p_.norm_eps);
    }
  }

  const Few& p_;
  uint8_t* stages_;
  Barrier *full_, *empty_;
  int* last_;
};

template <int kWidth, int kGroups>
__global__ void __launch_bounds__(Layout<kWidth, kGroups>::kThreads, 1)
    multiply(const __grid_constant__ Few p) {
  extern __shared__ uint8_t shared[];
  const Block<kWidth, kGroups> block(p, shared);
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

template <int kWidth, int kGroups>
void start(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const QuantizedRows& x,
           const Fp8Output& out) {
  using L = Layout<kWidth, kGroups>;
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const auto tiles = static_cast<int>((weight.rows + kFewTileRows - 1) / kFewTileRows);
  const auto groups = static_cast<int>((x.rows + L::kTokens - 1) / L::kTokens);
  const int units = tiles * cut.chunks * groups;
  CACHALOT_CHECK(tiles * groups + groups <= Queue::kCounters, "{} tiles, {} groups", tiles, groups);
  Few p{.weight = codes_map(weight.codes.data, weight.rows, weight.columns, kFewTileRows),
        .tile_scales = tile_scales_map(weight, kFewTileRows / 32),
        .x = codes_map(x.codes, x.rows, x.columns, L::kTokens),
        .x_scales = x.scales,
        .scale_stride = static_cast<int>(x.scale_stride),
        .tokens = static_cast<int>(x.rows),
        .out = static_cast<int>(weight.rows),
        .cut = cut,
        .tiles = tiles,
        .units = units,
        .partial = nullptr,
        .arrivals = queue.counters(),
        .y = reinterpret_cast<__nv_bfloat16*>(out.y),
        .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias),
        .norm = reinterpret_cast<const __nv_bfloat16*>(out.norm),
        .norm_eps = out.norm_eps};
  if (cut.chunks > 1)
    p.partial = scratch.allocate<float>(int64_t{units} * kFewTileRows * L::kTokens);
  launch(queue, "linear", multiply<kWidth, kGroups>,
         {.blocks = dim3(std::min(units, queue.multiprocessors())),
          .threads = L::kThreads,
          .shared_bytes = kSharedBytes},
         p);
}

}  // namespace

void multiply_fp8_few(Queue& queue, Scratch& scratch, const DenseMatrix& weight,
                      const QuantizedRows& x, const Fp8Output& out) {
  if (x.rows <= 8) return start<8, 1>(queue, scratch, weight, x, out);
  if (x.rows <= 16) return start<16, 1>(queue, scratch, weight, x, out);
  if (x.rows <= 32) return start<16, 2>(queue, scratch, weight, x, out);
  start<32, 2>(queue, scratch, weight, x, out);
}

}  // namespace cachalot::cuda
