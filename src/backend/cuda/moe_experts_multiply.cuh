// What the two consuming warpgroups of a block do: sums over the ring's stages, and the way of the
// results to device memory.
#pragma once

#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/moe_experts_pipeline.cuh"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16_steps.h"

namespace cachalot::cuda {

// A thread of one of them.
struct Consumer {
  uint32_t ring;
  uint32_t turn;  // this warpgroup's
  uint32_t full;  // barriers [stages]
  uint32_t empty;
  int group;   // which warpgroup
  int thread;  // of the warpgroup
  Position position;

  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  __device__ void sync() const { sync_threads_of(2 + group, 128); }
  // Nothing computed from these before is kept: else the compiler has all addresses of all tile
  // widths ready in registers that the sums need.
  __device__ void forget() {
    renew(turn);
    renew(thread);
    renew(group);
    renew(ring);
  }
};

// The descriptor of activations at `address`: rows of 128 bytes, eight to an atom of 1024. Its
// upper half is the same for all.
__device__ inline uint64_t activations_at(uint32_t address) {
  constexpr uint64_t kUpper =
      uint64_t{1024 >> 4} << 32 | static_cast<uint64_t>(SharedLayout::swizzle_128) << 62;
  return kUpper | (address >> 4 | 1u << 16);
}

template <int kGroups, int kN>
using Sums = float[kGroups][kN / 2];

// Adds one stage. One wgmma group - a block of 32 inputs, two k-steps - runs while the next block's
// codes are expanded into the other half of `steps`. `first`: the sums start here. `done` is the
// stage before, if there is one.
template <bool kWide, int kN, class Slab, bool first>
__device__ __forceinline__ void add_stage(Consumer& consumer, int row, int& done,
                                          uint32_t (&steps)[2][Shape<kWide>::kGroups][2][4],
                                          Sums<Shape<kWide>::kGroups, kN>& sums) {
  using S = Shape<kWide>;
  constexpr int kGroups = S::kGroups;
  // Where registers are left, codes are loaded a block ahead.
  constexpr bool kAhead = kN <= 16;
  const int stage = consumer.position.stage;
  wait_at(consumer.full + stage * 8, consumer.position.parity);
  consumer.position.template advance<S::kStages>();
  // The stage was written by ordinary copies, and matrix instructions read it.
  fence_shared_for_async();
  const uint32_t activations = consumer.ring + stage * S::kStageBytes;
  const uint32_t codes = activations + kN * 256;
  Slab slabs[kGroups];
#pragma unroll
  for (int m = 0; m < kGroups; ++m)
    slabs[m].start(codes, codes + S::kRows * Slab::Stage::kRowBytes, row + m * 64,
                   consumer.lane() % 4);
  if constexpr (kAhead) slabs[0].load(0);
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (!first || block > 1) wgmma_wait<1>();
    // The stage before is read to its end now.
    if (!first && block == 1 && consumer.lane() == 0) arrive_at(consumer.empty + done * 8);
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
      if constexpr (!kAhead) slabs[m].load(block);
      slabs[m].expand(block, steps[block % 2][m]);
      if (kAhead && block < 3) slabs[m].load(block + 1);
    }
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint64_t b =
          activations_at(activations + block / 2 * (kN * 128) + (block % 2 * 2 + step) * 32);
#pragma unroll
      for (int m = 0; m < kGroups; ++m)
        wgmma_bf16_step<kN>(sums[m], steps[block % 2][m][step], b, !first || block > 0 || step > 0);
    }
    wgmma_commit();
  }
  done = stage;
}

// Sums over all inputs. The first stage stands apart so that the compiler sees the sums begin
// there: if it were to believe that they may begin with what an earlier item left, all tile widths'
// sums would need registers at once.
template <bool kWide, int kN, class Slab>
__device__ __forceinline__ void multiply(Consumer& consumer, int chunks,
                                         Sums<Shape<kWide>::kGroups, kN>& sums) {
  constexpr int kGroups = Shape<kWide>::kGroups;
  consumer.forget();
  const int row = consumer.group * kGroups * 64 + consumer.warp() * 16 + consumer.lane() / 4;
  uint32_t steps[2][kGroups][2][4];
  int done = 0;
  add_stage<kWide, kN, Slab, true>(consumer, row, done, steps, sums);
  for (int chunk = 1; chunk < chunks; ++chunk)
    add_stage<kWide, kN, Slab, false>(consumer, row, done, steps, sums);
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < kGroups; ++m) wgmma_hold(sums[m]);
  if (consumer.lane() == 0) arrive_at(consumer.empty + done * 8);
}

// From shared memory to rows of `out`: kPieces of 16 bytes of every column.
template <int kPieces>
__device__ void store_turned(const Consumer& consumer, int pitch, const ExpertTile& tile, bf16* out,
                             int64_t out_columns) {
  for (int i = consumer.thread; i < tile.rows * kPieces; i += 128) {
    const int column = i / kPieces, piece = i % kPieces;
    const uint4 eight = load_shared_4(consumer.turn + column * pitch + piece * 16);
    *reinterpret_cast<uint4*>(out + (tile.first_row + column) * out_columns + piece * 8) = eight;
  }
}

// 8 columns by lane's two: where this lane's row of a transposed matrix goes.
__device__ inline uint32_t turned_row(const Consumer& consumer, int columns, int pitch) {
  return consumer.turn + (columns + consumer.lane() % 8) * pitch;
}

// The experts' outputs: RNE_BF16 of the sums.
template <bool kWide, int kN>
__device__ __forceinline__ void finish_down(const Consumer& consumer, const PassArguments& args,
                                            const Item& item,
                                            const Sums<Shape<kWide>::kGroups, kN>& sums) {
  using S = Shape<kWide>;
#pragma unroll
  for (int m = 0; m < S::kGroups; ++m) {
    const int half = consumer.lane() / 8 % 2;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const float* four = &sums[m][4 * j];
      const uint32_t to =
          turned_row(consumer, 8 * j, S::kTurnPitch) + (consumer.warp() * 16 + half * 8) * 2;
      store_transposed(to, packed_bf16({four[0] * kWeightShift, four[1] * kWeightShift}),
                       packed_bf16({four[2] * kWeightShift, four[3] * kWeightShift}));
    }
    consumer.sync();
    const int channel = item.strip * S::kRows + (consumer.group * S::kGroups + m) * 64;
    store_turned<8>(consumer, S::kTurnPitch, item.tile, args.out + channel, args.out_columns);
    consumer.sync();
  }
}

// weight * silu(gate) * up between its roundings. The approximate exponential and division are off
// by a few units of FP32; what follows rounds to BF16's 8 bits and then to E4M3's 4.
__device__ inline float gated(float gate, float up, float weight, float limit) {
  float g = rounded_to_bf16(gate * kWeightShift), u = rounded_to_bf16(up * kWeightShift);
  if (limit > 0) {
    g = fminf(g, limit);
    u = fminf(fmaxf(u, -limit), limit);
  }
  // Where e^-g leaves FP32's range the quotient is 0, as it should be to 2^-120.
  const float sigmoid = __fdividef(1.0f, 1.0f + __expf(-g));
  return rounded_to_bf16(weight * (g * sigmoid * u));
}

// Hidden rows: gated values, rounded to FP8 in groups of 32, which are what one 64-row group holds.
template <bool kWide, int kN>
__device__ __forceinline__ void finish_gate_up(const Consumer& consumer, const PassArguments& args,
                                               const Item& item,
                                               Sums<Shape<kWide>::kGroups, kN>& sums) {
  using S = Shape<kWide>;
  constexpr int kPitch = 32 * 2 + 16;
  const int c = consumer.lane() % 4;
  const uint32_t maxima = consumer.turn + kN * S::kTurnPitch;  // [warp][column]
#pragma unroll
  for (int m = 0; m < S::kGroups; ++m) {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      float* four = &sums[m][4 * j];
      float largest[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * j + 2 * c + i;
        float weight = 1;
        if (!item.shared && column < item.tile.rows)
          weight = args.row_weights[item.tile.first_row + column];
        four[i] = gated(four[i], four[2 + i], weight, args.limit);
        largest[i] = fabsf(four[i]);
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], lanes));
      }
      if (consumer.lane() < 4)
        store_shared_2(maxima + (consumer.warp() * kN + 8 * j + 2 * c) * 4,
                       make_float2(largest[0], largest[1]));
    }
    consumer.sync();
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const float* four = &sums[m][4 * j];
      float2 largest = make_float2(0, 0);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const uint2 bits = load_shared_2(maxima + (w * kN + 8 * j + 2 * c) * 4);
        largest.x = fmaxf(largest.x, __uint_as_float(bits.x));
        largest.y = fmaxf(largest.y, __uint_as_float(bits.y));
      }
      const float first = Fp8Group(largest.x).rounded(four[0], 0).x;
      const float second = Fp8Group(largest.y).rounded(four[1], 0).x;
      store_transposed(turned_row(consumer, 8 * j, kPitch) + consumer.warp() * 16,
                       packed_bf16({first, second}));
    }
    consumer.sync();
    const int channel = item.strip * (S::kRows / 2) + (consumer.group * S::kGroups + m) * 32;
    store_turned<4>(consumer, kPitch, item.tile, args.out + channel, args.out_columns);
    consumer.sync();
  }
}

}  // namespace cachalot::cuda
