// Both passes for tiles of few rows: matrices are streamed past them. Two blocks a multiprocessor,
// each of eight warps that multiply, 16 matrix rows apiece, and one that fills the ring.
//
// The products are mma.sync's: a warp waits for nobody, and with so few columns they are not what
// takes time. Their sums have the same bits as wgmma's in the wide kernel (measured), so that a
// token's result does not depend on which of the two it meets.
#include "backend/cuda/moe_experts_gated.cuh"
#include "backend/cuda/moe_experts_pipeline.cuh"
#include "backend/cuda/ptx/mma_bf16_step.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 8;  // that multiply
// Two warps more than multiply, of which one fills the ring. Which, tells the two blocks of a
// multiprocessor apart: a quarter of it has both blocks' ninth warps, and would be late for all.
constexpr int kThreads = kWarps * 32 + 64;

template <Kind kind>
constexpr int kSharedBytes = 1024 + Shape<kind>::kRingBytes;

struct Consumer {
  uint32_t ring, full, empty;
  uint32_t maxima;  // [2][warps][columns], of items in turn
  int warp, lane;
  Position position;

  // Of the 64-row side(s) of an item, the octet and side of this warp's rows g and g + 8: gate and
  // up of the same hidden values, or the next rows of w2.
  // Of a low item a warp has one octet.
  template <Pass pass, Kind kind>
  __device__ int side(int half) const {
    return pass == Pass::gate_up ? half : kind == Kind::narrow ? warp / 4 : 0;
  }
  template <Pass pass, Kind kind>
  __device__ int octet(int half) const {
    return pass == Pass::gate_up || kind == Kind::low ? warp : warp % 4 * 2 + half;
  }
};

template <int kN>
using Sums = float[kN / 8][4];

template <Pass pass, Kind kind, int kN, class Rows>
__device__ __forceinline__ void multiply(Consumer& consumer, int stages, Sums<kN>& sums) {
  using S = Shape<kind>;
  constexpr int kHalves = kind == Kind::low ? 1 : 2;
  const PlaceParts<kind> parts(Rows::kShared, kN);
  const int lane = consumer.lane;
  uint32_t codes[2], scales[2];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int side = consumer.side<pass, kind>(half);
    const int octet = consumer.octet<pass, kind>(half);
    codes[half] = parts.weights + side * parts.side_bytes() + octet * Rows::kOctetBytes;
    scales[half] = parts.scales() + side * parts.side_scale_bytes() + octet * Rows::kScaleBytes;
  }
  // Piece lane / 8 of a block's four, of row lane % 8.
  const uint32_t first_piece = lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4);
  constexpr int kStages = S::stages(Rows::kShared);
  for (int stage = 0; stage < stages; stage += kStages) {
    const uint32_t place = consumer.ring + consumer.position.place * S::kFp4Bytes;
    wait_at(consumer.full + consumer.position.place * 8, consumer.position.parity);
    Rows rows[kStages];
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        rows[s].load(half, place + codes[half] + s * 8 * Rows::kOctetBytes,
                     place + scales[half] + s * parts.scale_bytes, lane);
    }
    // Activations of 8 columns fit into registers too: then the place is free before it is used.
    constexpr bool kAllLoaded = kN == 8 && kind == Kind::narrow && !Rows::kShared;
    uint32_t b[kAllLoaded ? kStages : 1][4][kN / 8][4];
    const auto load_activations = [&](int s, uint32_t(&to)[4][kN / 8][4]) {
#pragma unroll
      for (int block = 0; block < 4; ++block) {
#pragma unroll
        for (int j = 0; j < kN / 8; ++j)
          load_matrices(
              place + (j * kStages + s) * 2048 + block / 2 * 1024 + (first_piece ^ block % 2 * 64),
              to[block][j]);
      }
    };
    const auto leave_place = [&] {
      __syncwarp();
      if (lane == 0) arrive_at(consumer.empty + consumer.position.place * 8);
    };
    if constexpr (kAllLoaded) {
#pragma unroll
      for (int s = 0; s < kStages; ++s) load_activations(s, b[s]);
      leave_place();
    }
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      if (s > 0 && stage + s >= stages) break;
      if constexpr (!kAllLoaded) load_activations(s, b[0]);
      auto& columns = b[kAllLoaded ? s : 0];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        uint32_t steps[2][4];
        rows[s].expand(block, steps);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int j = 0; j < kN / 8; ++j)
            mma_bf16_step(sums[j], steps[step], columns[block][j][2 * step],
                          columns[block][j][2 * step + 1]);
        }
      }
    }
    if constexpr (!kAllLoaded) leave_place();
    consumer.position.advance<S::kPlaces>();
  }
}

// The experts' outputs: RNE_BF16 of the sums.
template <Kind kind, int kN>
__device__ __forceinline__ void finish_down(const Consumer& consumer, const PassArguments& args,
                                            const Item& item, const Sums<kN>& sums) {
  constexpr int kHalves = kind == Kind::low ? 1 : 2;
  const int channel =
      item.strip * Shape<kind>::kRows + consumer.warp * (8 * kHalves) + consumer.lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
    const int row = 8 * j + consumer.lane / 4;
    uint32_t* out = reinterpret_cast<uint32_t*>(
        args.out + static_cast<int64_t>(item.tile.first_row + row) * args.out_columns + channel);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t pair = transposed(
          packed_bf16({sums[j][2 * half] * kWeightShift, sums[j][2 * half + 1] * kWeightShift}));
      if (row < item.tile.rows) out[half * 4] = pair;
    }
  }
}

// Hidden rows: gated values, rounded to FP8 in groups of 32, which are what four warps hold. The
// values of octet o are piece o of the atom that the item's 64 are.
template <int kN>
__device__ __forceinline__ void finish_gate_up(Consumer& consumer, const PassArguments& args,
                                               const Item& item, const Sums<kN>& sums) {
  const int lane = consumer.lane, c = lane % 4;
  // Pairs of columns, as BF16.
  const uint32_t own = consumer.maxima + consumer.warp * (kNarrowColumns * 2);
  const uint32_t group = consumer.maxima + consumer.warp / 4 * (4 * kNarrowColumns * 2);
  uint32_t hidden[kN / 8];
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
    float2 weight = {1, 1};
    if (!item.shared)
      weight =
          *reinterpret_cast<const float2*>(args.row_weights + item.tile.first_row + 8 * j + 2 * c);
    const float* four = sums[j];
    hidden[j] = gated({four[0], four[1]}, {four[2], four[3]}, weight, args.limit);
    uint32_t largest = absolute(hidden[j]);
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2)
      largest = larger(largest, __shfl_xor_sync(~0u, largest, lanes));
    if (lane < 4) store_shared(own + (4 * j + c) * 4, largest);
  }
  sync_threads_of(1 + consumer.warp / 4, 128);
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      largest = larger(largest, load_shared(group + w * (kNarrowColumns * 2) + (4 * j + c) * 4));
    const float2 of_columns = unpacked_bf16(largest);
    const uint32_t pair =
        transposed(rounded_pair(hidden[j], Fp8Group(of_columns.x), Fp8Group(of_columns.y)));
    const int row = lane / 4;
    if (8 * j + row >= item.tile.rows) continue;
    const int64_t atom =
        static_cast<int64_t>(item.tile.first_row / 8 + j) * (args.out_columns / 64) + item.strip;
    reinterpret_cast<uint32_t*>(
        args.out)[atom * 256 + row * 32 + ((consumer.warp ^ row) << 2) + c] = pair;
  }
  // Whoever is an item ahead writes the other maxima: nobody is two ahead of a barrier.
  consumer.maxima ^= kWarps * kNarrowColumns * 2;
}

template <Pass pass, Kind kind, int kN, class Rows>
__device__ __forceinline__ void run_item(Consumer& consumer, const PassArguments& args,
                                         const Item& item) {
  Sums<kN> sums = {};
  multiply<pass, kind, kN, Rows>(consumer, args.depth / kStageDepth, sums);
  if constexpr (pass == Pass::gate_up) {
    finish_gate_up<kN>(consumer, args, item, sums);
  } else {
    finish_down<kind, kN>(consumer, args, item, sums);
  }
}

template <Pass pass, Kind kind>
__device__ __forceinline__ void consume(Consumer consumer, const PassArguments& args) {
  constexpr int kHalves = kind == Kind::low ? 1 : 2;
  using Fp4 = Fp4Rows<false, kHalves>;
  using Fp8 = Fp8Rows<false, kHalves>;
  Item item;
  for (int round = 0; item.read(args, round); ++round) {
    if (kind == Kind::low || item.tile.rows <= 8) {
      if (item.shared) {
        run_item<pass, kind, 8, Fp8>(consumer, args, item);
      } else {
        run_item<pass, kind, 8, Fp4>(consumer, args, item);
      }
    } else if constexpr (kind == Kind::narrow) {
      if (item.shared) {
        run_item<pass, kind, 16, Fp8>(consumer, args, item);
      } else {
        run_item<pass, kind, 16, Fp4>(consumer, args, item);
      }
    }
  }
}

template <Pass pass, Kind kind>
__global__ void __launch_bounds__(kThreads, 2)
    experts_narrow(const __grid_constant__ PassArguments args) {
  using S = Shape<kind>;
  extern __shared__ uint8_t shared[];
  __shared__ Barrier full[S::kPlaces], empty[S::kPlaces];
  __shared__ alignas(512) uint16_t maxima[2][kWarps][kNarrowColumns];
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kPlaces; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const uint32_t ring = (shared_address(shared) + 1023) / 1024 * 1024;
  const int warp = threadIdx.x / 32;
  if (warp >= kWarps) {
    const bool second_half = blockIdx.x >= gridDim.x / 2;
    if (warp - kWarps == (second_half ? 1 : 0))
      Producer<pass, kind, Copies::all>(args, ring, shared_address(full), shared_address(empty))
          .run();
  } else {
    if (args.first) wait_for_inputs();
    let_next_start();
    consume<pass, kind>({ring,
                         shared_address(full),
                         shared_address(empty),
                         shared_address(maxima),
                         warp,
                         static_cast<int>(threadIdx.x % 32),
                         {}},
                        args);
  }
  if (!args.first) wait_for_inputs();
}

template <Pass pass, Kind kind>
void launch_kind(Queue& queue, const ExpertsStep& step, const PassArguments& args, bool first) {
  launch(queue, "moe_experts", experts_narrow<pass, kind>,
         {.blocks = dim3(queue.multiprocessors() * 2),
          .threads = kThreads,
          .shared_bytes = kSharedBytes<kind>},
         completed<pass, kind>(step, args, first));
}

}  // namespace

template <>
void launch_narrow<Pass::gate_up>(Queue& queue, const ExpertsStep& step, PassArguments args,
                                  bool first) {
  launch_kind<Pass::gate_up, Kind::narrow>(queue, step, args, first);
}
template <>
void launch_narrow<Pass::down>(Queue& queue, const ExpertsStep& step, PassArguments args,
                               bool first) {
  // Items of all blocks at once, and few more: half as high they divide better.
  if (step.plan.tokens == 1) {
    launch_kind<Pass::down, Kind::low>(queue, step, args, first);
  } else {
    launch_kind<Pass::down, Kind::narrow>(queue, step, args, first);
  }
}

}  // namespace cachalot::cuda
