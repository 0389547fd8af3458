// The way of a wide tile's sums to device memory: an atom of eight rows, or a piece of eight plain
// rows, is put together in shared memory.
#pragma once

#include "backend/cuda/moe_experts_gated.cuh"
#include "backend/cuda/moe_experts_pipeline.cuh"

namespace cachalot::cuda {

// What a warpgroup has for it.
constexpr int kAtomsAtOnce = 4;
constexpr int kWideResultBytes = kAtomsAtOnce * 1024;
template <Kind kind>
constexpr int kWideSharedBytes = 1024 + Shape<kind>::kRingBytes + 2 * kWideResultBytes;

// A thread of one of the two warpgroups that multiply.
struct WideConsumer {
  uint32_t ring;
  uint32_t results;  // this warpgroup's
  uint32_t full;     // barriers [places]
  uint32_t empty;
  uint32_t other;
  int group;              // which warpgroup
  int thread;             // of the warpgroup
  Position positions[2];  // in FP4's ring and in FP8's

  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  __device__ void sync() const { sync_threads_of(2 + group, 128); }
  // A place has been read: both blocks may be written to then.
  template <class R>
  __device__ void leave(int place) const {
    const uint32_t barrier = empty + (R::kFirstBarrier + place) * 8;
    const bool one = lane() == 0;
    arrive_at_if(barrier, one);
    arrive_at_block_if(barrier, other, one && other != blockIdx.x % 2);
  }
  // Nothing computed from these before is kept: else the compiler has all addresses of all tile
  // widths ready in registers that the sums need.
  __device__ void forget() {
    renew(results);
    renew(thread);
    renew(group);
    renew(ring);
  }

  // Sides 2 group and 2 group + 1 of an item are this warpgroup's. Its product m has of gate and up
  // octets 4 m .. 4 m + 3 of both, of w2 all octets of side m: where the octet of a warp's rows g +
  // 8 half is,
  template <Pass pass>
  __device__ int octet() const {
    return pass == Pass::gate_up ? warp() : warp() * 2;
  }
  // in octets on from that (a side is 8).
  template <Pass pass>
  __device__ static constexpr int octets_on(int m, int half) {
    return pass == Pass::gate_up ? half * 8 + m * 4 : m * 8 + half;
  }
};

template <int kN>
using WideSums = float[2][kN / 2];

// Where this lane's row of a transposed matrix goes in a patch of atoms: row `row` of eight, piece
// `piece`.
__device__ inline uint32_t piece_at(uint32_t atom, int row, int piece) {
  return atom + row * 128 + ((piece ^ row) << 4);
}

// The experts' outputs, RNE_BF16 of the sums: of 8 columns and 64 channels an atom at a time.
template <int kN>
__device__ __forceinline__ void finish_down(const WideConsumer& consumer, const PassArguments& args,
                                            const Item& item, const WideSums<kN>& sums) {
  const int lane = consumer.lane();
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int channel = item.strip * kWideRows + (consumer.group * 2 + m) * 64;
#pragma unroll
    for (int first = 0; first < kN / 8; first += kAtomsAtOnce) {
      constexpr int kAll = kN / 8;
      const int atoms = kAll - first < kAtomsAtOnce ? kAll - first : kAtomsAtOnce;
#pragma unroll
      for (int j = 0; j < atoms; ++j) {
        const float* four = &sums[m][4 * (first + j)];
        store_transposed(
            piece_at(consumer.results + j * 1024, lane % 8, consumer.warp() * 2 + lane / 8 % 2),
            packed_bf16({four[0] * kWeightShift, four[1] * kWeightShift}),
            packed_bf16({four[2] * kWeightShift, four[3] * kWeightShift}));
      }
      consumer.sync();
#pragma unroll
      for (int i = 0; i < kAtomsAtOnce / 2; ++i) {
        const int row = consumer.thread / 8 + i * 16, piece = consumer.thread % 8;
        if (row >= atoms * 8 || 8 * first + row >= item.tile.rows) continue;
        const uint4 eight =
            load_shared_4(piece_at(consumer.results + row / 8 * 1024, row % 8, piece));
        *reinterpret_cast<uint4*>(args.out +
                                  static_cast<int64_t>(item.tile.first_row + 8 * first + row) *
                                      args.out_columns +
                                  channel + piece * 8) = eight;
      }
      consumer.sync();
    }
  }
}

// A piece of a hidden row, rounded to FP8 with the three pieces that neighbouring threads have of
// its group of 32.
__device__ inline uint4 rounded_piece(uint4 piece) {
  uint32_t largest = larger(larger(absolute(piece.x), absolute(piece.y)),
                            larger(absolute(piece.z), absolute(piece.w)));
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2)
    largest = larger(largest, __shfl_xor_sync(~0u, largest, lanes));
  const float2 halves = unpacked_bf16(largest);
  const Fp8Group fp8(fmaxf(halves.x, halves.y));
  return make_uint4(rounded_pair(piece.x, fp8, fp8), rounded_pair(piece.y, fp8, fp8),
                    rounded_pair(piece.z, fp8, fp8), rounded_pair(piece.w, fp8, fp8));
}

// Hidden rows: gated values, rounded to FP8 in groups of 32. A warpgroup's two products make an
// atom of eight rows: the values of octet o are its piece o.
template <int kN>
__device__ __forceinline__ void finish_gate_up(const WideConsumer& consumer,
                                               const PassArguments& args, const Item& item,
                                               const WideSums<kN>& sums) {
  const int lane = consumer.lane(), c = lane % 4;
  const int64_t columns = args.out_columns / 64;
  uint4* out = reinterpret_cast<uint4*>(args.out) +
               (item.tile.first_row / 8 * columns + item.strip * 2 + consumer.group) * 64;
#pragma unroll
  for (int first = 0; first < kN / 8; first += kAtomsAtOnce) {
    constexpr int kAll = kN / 8;
    const int atoms = kAll - first < kAtomsAtOnce ? kAll - first : kAtomsAtOnce;
#pragma unroll
    for (int j = 0; j < atoms; ++j) {
      // Rows after the tile's last are the next ones' or of nobody: finite or not, nobody stores
      // what comes of them.
      float2 weight = {1, 1};
      if (!item.shared && 8 * (first + j) < item.tile.rows)
        weight = *reinterpret_cast<const float2*>(args.row_weights + item.tile.first_row +
                                                  8 * (first + j) + 2 * c);
      uint32_t hidden[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const float* four = &sums[m][4 * (first + j)];
        hidden[m] = gated({four[0], four[1]}, {four[2], four[3]}, weight, args.limit);
      }
      store_transposed(
          piece_at(consumer.results + j * 1024, lane % 8, consumer.warp() + lane / 8 % 2 * 4),
          hidden[0], hidden[1]);
    }
    consumer.sync();
#pragma unroll
    for (int i = 0; i < kAtomsAtOnce / 2; ++i) {
      const int piece = consumer.thread + i * 128;  // of all
      if (i * 128 >= atoms * 64) break;
      const uint4 rounded = rounded_piece(load_shared_4(consumer.results + piece * 16));
      const int row = 8 * first + piece / 8;
      if (piece >= atoms * 64 || row >= item.tile.rows) continue;
      out[(first + piece / 64) * columns * 64 + piece % 64] = rounded;
    }
    consumer.sync();
  }
}

}  // namespace cachalot::cuda
