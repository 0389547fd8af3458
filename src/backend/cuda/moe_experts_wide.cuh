// The kernel of both passes for tiles of many rows. A block of three warpgroups walks the items of
// its turn: a warp of one fills the ring, two multiply, each 128 matrix rows: two wgmmas of 64.
#pragma once

#include "backend/cuda/moe_experts_wide_results.cuh"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16_steps.h"

namespace cachalot::cuda {

constexpr int kWideConsumers = Shape<Kind::wide>::kConsumers;
constexpr int kWideThreads = kWideConsumers + 128;

// The descriptor of activations at `address`: atoms of 8 rows of 128 bytes, those of the next 8
// rows 2048 further. Its upper half is the same for all.
__device__ inline uint64_t activations_at(uint32_t address) {
  constexpr uint64_t kUpper =
      uint64_t{2048 >> 4} << 32 | static_cast<uint64_t>(SharedLayout::swizzle_128) << 62;
  return kUpper | (address >> 4 | 1u << 16);
}

// Adds one stage. A wgmma group is two k-steps, a block of 32 inputs, of 64 matrix rows. Two run
// while the codes of the rows whose group ended before them are expanded into the other half of
// `steps`; codes are on their way from shared memory before that. `first`: the sums start here.
// `done` is the place before, if there is one.
template <Pass pass, Kind kind, int kN, class Rows, bool first>
__device__ __forceinline__ void add_stage(WideConsumer& consumer, uint32_t codes, uint32_t scales,
                                          int& done, uint32_t (&steps)[2][2][2][4],
                                          WideSums<kN>& sums) {
  using R = Ring<kind, Rows::kShared>;
  Position& position = consumer.positions[R::kIndex];
  const int place = position.place;
  const uint32_t at = consumer.ring + place * R::kPlaceBytes;
  wait_at(consumer.full + (R::kFirstBarrier + place) * 8, position.parity);
  position.template advance<R::kPlaces>();
  Rows rows[2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int octets = WideConsumer::octets_on<pass>(m, half);
      rows[m].load(half, at + codes + octets * Rows::kOctetBytes,
                   at + scales + octets * Rows::kScaleBytes, consumer.lane());
    }
  }
#pragma unroll
  for (int block = 0; block < 4; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m) rows[m].fetch(block);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      if (!first || block > 1) wgmma_wait<2>();
      // The place before is read to its end now.
      if (!first && block == 1 && m == 0) consumer.template leave<R>(done);
      rows[m].settle(block);
      rows[m].expand(block, steps[block % 2][m]);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint64_t b = activations_at(at + block / 2 * 1024 + (block % 2 * 2 + step) * 32);
        wgmma_bf16_step<kN>(sums[m], steps[block % 2][m][step], b, !first || block > 0 || step > 0);
      }
      wgmma_commit();
    }
  }
  done = place;
}

// Sums over all inputs. The first stage stands apart so that the compiler sees the sums begin
// there: if it were to believe that they may begin with what an earlier item left, all tile widths'
// sums would need registers at once.
template <Pass pass, Kind kind, int kN, class Rows>
__device__ __forceinline__ void multiply(WideConsumer& consumer, int stages, WideSums<kN>& sums) {
  consumer.forget();
  using R = Ring<kind, Rows::kShared>;
  const PlaceParts<kind> parts(Rows::kShared, kN);
  const int octet = consumer.octet<pass>();
  const uint32_t codes =
      parts.weights + consumer.group * 2 * parts.side_bytes() + octet * Rows::kOctetBytes;
  const uint32_t scales =
      parts.scales() + consumer.group * 2 * parts.scale_bytes + octet * Rows::kScaleBytes;
  uint32_t steps[2][2][2][4];
  int done = 0;
  add_stage<pass, kind, kN, Rows, true>(consumer, codes, scales, done, steps, sums);
  for (int stage = 1; stage < stages; ++stage)
    add_stage<pass, kind, kN, Rows, false>(consumer, codes, scales, done, steps, sums);
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < 2; ++m) wgmma_hold(sums[m]);
  consumer.template leave<R>(done);
}

template <Pass pass, Kind kind, int kN, class Rows>
__device__ __forceinline__ void run_item(WideConsumer& consumer, const PassArguments& args,
                                         const Item& item) {
  WideSums<kN> sums;
  multiply<pass, kind, kN, Rows>(consumer, args.depth / kStageDepth, sums);
  consumer.forget();
  if constexpr (pass == Pass::gate_up) {
    finish_gate_up<kN>(consumer, args, item, sums);
  } else {
    finish_down<kN>(consumer, args, item, sums);
  }
}

// With that tile of the matrix instruction of `kNs` which has so many columns.
template <Pass pass, Kind kind, class Rows, int... kNs>
__device__ __forceinline__ void run_item(WideConsumer& consumer, const PassArguments& args,
                                         const Item& item, int columns) {
  ((columns == kNs ? run_item<pass, kind, kNs, Rows>(consumer, args, item) : void()), ...);
}

template <Pass pass, Kind kind>
__device__ __forceinline__ void consume(WideConsumer consumer, const PassArguments& args) {
  using Fp4 = Fp4Rows<true>;
  using Fp8 = Fp8Rows<true>;
  Item item;
  for (int round = 0; item.read(args, round); ++round) {
    Item::bring_near(args, round + 1);
    const int columns = Shape<kind>::columns(item.tile.rows, item.shared);
    if constexpr (kind == Kind::many) {
      if (item.shared) {
        run_item<pass, kind, Shape<kind>::kFp8Columns, Fp8>(consumer, args, item);
      } else {
        run_item<pass, kind, Fp4, 32, 48, 64, 80, 96, 104, 112, 120, 128, 136, 144, 152, 160>(
            consumer, args, item, columns);
      }
    } else if (item.shared) {
      run_item<pass, kind, Fp8, 32, 48, 64, 80, 96, 112, 128, 144>(consumer, args, item, columns);
    } else {
      run_item<pass, kind, Fp4, 32, 48, 64, 80, 96, 112, 128, 144>(consumer, args, item, columns);
    }
  }
}

template <Pass pass, Kind kind>
__global__ void __launch_bounds__(kWideThreads, 1)
    experts_wide(const __grid_constant__ PassArguments args) {
  using S = Shape<kind>;
  extern __shared__ uint8_t shared[];
  __shared__ Barrier full[S::kBarriers], empty[S::kBarriers];
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kBarriers; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], S::kConsumers / 32 * args.cluster);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (args.cluster == 2) sync_cluster();
  const uint32_t ring = (shared_address(shared) + 1023) / 1024 * 1024;
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 2) {
    give_registers<40>();
    const int warp = (threadIdx.x - kWideConsumers) / 32;
    const auto fill = [&]<Copies copies> {
      Producer<pass, kind, copies>(args, ring, shared_address(full), shared_address(empty)).run();
    };
    if (warp == 0) fill.template operator()<Copies::weights>();
    if (warp == 1) fill.template operator()<Copies::activations>();
    if constexpr (pass == Pass::gate_up) {
      if (warp >= 2 && args.later.counts != nullptr) {
        wait_for_inputs();
        copy_later_rows(args.later);
      }
    }
    if (!args.first) wait_for_inputs();
  } else {
    take_registers<232>();
    if (args.first) wait_for_inputs();
    let_next_start();
    consume<pass, kind>({ring,
                         ring + S::kRingBytes + warpgroup * kWideResultBytes,
                         shared_address(full),
                         shared_address(empty),
                         args.cluster == 2 ? blockIdx.x % 2 ^ 1 : blockIdx.x % 2,
                         warpgroup,
                         static_cast<int>(threadIdx.x % 128),
                         {}},
                        args);
    if (!args.first) wait_for_inputs();
  }
  // The other block may still arrive at this one's barriers.
  if (args.cluster == 2) {
    __syncwarp();
    sync_cluster();
  }
}

template <Pass pass, Kind kind>
void launch_wide(Queue& queue, const ExpertsStep& step, PassArguments args, bool first) {
  args = completed<pass, kind>(step, args, first);
  launch(queue, "moe_experts", experts_wide<pass, kind>,
         {.blocks = dim3(queue.multiprocessors() / args.cluster * args.cluster),
          .threads = kWideThreads,
          .shared_bytes = kWideSharedBytes<kind>,
          .cluster = args.cluster},
         args);
}

}  // namespace cachalot::cuda
