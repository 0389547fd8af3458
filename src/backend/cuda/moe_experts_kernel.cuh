// The kernel of both passes. A block of three warpgroups walks the items of its turn: one fills the
// ring, two multiply.
#pragma once

#include "backend/cuda/moe_experts_multiply.cuh"

namespace cachalot::cuda {

constexpr int kConsumers = 256, kProducers = 128;

template <Pass pass, bool kWide, int kN, class Slab>
__device__ __forceinline__ void run_item(Consumer& consumer, const PassArguments& args,
                                         const Item& item) {
  Sums<Shape<kWide>::kGroups, kN> sums;
  multiply<kWide, kN, Slab>(consumer, args.depth / kStageDepth, sums);
  consumer.forget();
  if constexpr (pass == Pass::gate_up) {
    finish_gate_up<kWide, kN>(consumer, args, item, sums);
  } else {
    finish_down<kWide, kN>(consumer, args, item, sums);
  }
}

template <Pass pass, bool kWide>
__device__ __forceinline__ void consume(Consumer consumer, const PassArguments& args) {
  using Shared = Fp8Slab<pass == Pass::gate_up>;
  Item item;
#define CACHALOT_COLUMNS(N, Slab)                         \
  case N:                                                 \
    run_item<pass, kWide, N, Slab>(consumer, args, item); \
    break;
  for (int index = blockIdx.x; item.read(args, index); index += gridDim.x) {
    if constexpr (kWide) {
      const int columns = wide_class(item.tile.rows);
      if (item.shared) {
        switch (columns) {
          CACHALOT_COLUMNS(48, Shared)
          CACHALOT_COLUMNS(64, Shared)
          CACHALOT_COLUMNS(80, Shared)
        }
      } else {
        switch (columns) {
          CACHALOT_COLUMNS(48, Fp4Slab)
          CACHALOT_COLUMNS(64, Fp4Slab)
          CACHALOT_COLUMNS(80, Fp4Slab)
          CACHALOT_COLUMNS(96, Fp4Slab)
          CACHALOT_COLUMNS(112, Fp4Slab)
          CACHALOT_COLUMNS(128, Fp4Slab)
          CACHALOT_COLUMNS(144, Fp4Slab)
        }
      }
    } else {
      const int columns = narrow_class(item.tile.rows);
      if (item.shared) {
        switch (columns) {
          CACHALOT_COLUMNS(8, Shared)
          CACHALOT_COLUMNS(16, Shared)
          CACHALOT_COLUMNS(32, Shared)
        }
      } else {
        switch (columns) {
          CACHALOT_COLUMNS(8, Fp4Slab)
          CACHALOT_COLUMNS(16, Fp4Slab)
          CACHALOT_COLUMNS(32, Fp4Slab)
        }
      }
    }
  }
#undef CACHALOT_COLUMNS
}

template <Pass pass, bool kWide>
__device__ __forceinline__ void produce(const PassArguments& args, uint32_t ring, uint32_t full,
                                        uint32_t empty, int* tokens) {
  using S = Shape<kWide>;
  Producer<pass, kWide> producer(args, ring, tokens);
  const int chunks = args.depth / kStageDepth;
  // Matrices do not wait for the pass before; which ones they are, routed pairs wait for, unless
  // the kernel before this one has waited already.
  const bool shared_first = static_cast<int>(blockIdx.x) < args.shared_tiles * args.item_count;
  const bool ahead = args.first && (pass == Pass::down || shared_first);
  if (args.first && !ahead) wait_for_inputs();
  Position position;
  Item item;
  bool first = true;
  for (int index = blockIdx.x; item.read(args, index); index += gridDim.x) {
    const int columns = kWide ? wide_class(item.tile.rows) : narrow_class(item.tile.rows);
    producer.start(item, columns);
    int copied = 0;
    if (first && ahead) {
      for (; copied < chunks && copied < S::kStages; ++copied) producer.copy_codes(copied, copied);
      wait_for_inputs();
    }
    producer.find_tokens();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait_at(empty + position.stage * 8, position.parity ^ 1);
      if (chunk >= copied) producer.copy_codes(position.stage, chunk);
      producer.copy_activations(position.stage, chunk);
      arrive_after_copies(full + position.stage * 8);
      position.template advance<S::kStages>();
    }
    first = false;
  }
  if (first && ahead) wait_for_inputs();
}

template <Pass pass, bool kWide>
__global__ void __launch_bounds__(kConsumers + kProducers, kWide ? 1 : 2)
    experts_kernel(const __grid_constant__ PassArguments args) {
  using S = Shape<kWide>;
  extern __shared__ uint8_t shared[];
  __shared__ Barrier full[S::kStages], empty[S::kStages];
  __shared__ int tokens[S::kColumns];
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(&full[i], kProducers);
      barrier_init(&empty[i], kConsumers / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const uint32_t ring = (shared_address(shared) + 1023) / 1024 * 1024;
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 2) {
    if constexpr (kWide) give_registers<40>();
    produce<pass, kWide>(args, ring, shared_address(full), shared_address(empty), tokens);
    if (!args.first) wait_for_inputs();
  } else {
    if constexpr (kWide) take_registers<232>();
    if (args.first) wait_for_inputs();
    let_next_start();
    const uint32_t turn = ring + S::kStages * S::kStageBytes + warpgroup * S::kTurnBytes;
    consume<pass, kWide>({ring,
                          turn,
                          shared_address(full),
                          shared_address(empty),
                          warpgroup,
                          static_cast<int>(threadIdx.x % 128),
                          {}},
                         args);
    if (!args.first) wait_for_inputs();
  }
}

template <Pass pass, bool kWide>
void launch_tiles(Queue& queue, const ExpertsStep& step, PassArguments args, bool first) {
  using S = Shape<kWide>;
  const ExpertsPlan& plan = step.plan;
  const bool with_shared = kWide == plan.any_wide();
  args.tiles = kWide ? step.wide_tiles : step.narrow_tiles;
  args.tile_count = step.tile_counts + (kWide ? 1 : 0);
  args.shared_tiles = static_cast<int>(with_shared ? plan.shared_tiles() : 0);
  args.shared_columns = static_cast<int>(plan.shared_columns());
  args.tokens = static_cast<int>(plan.tokens);
  args.pairs = static_cast<int>(plan.pairs());
  const int64_t rows = pass == Pass::gate_up ? 2 * step.width : step.dim;
  args.item_count = static_cast<int>(rows / S::kRows);
  args.first = first;
  launch(queue, "moe_experts", experts_kernel<pass, kWide>,
         {.blocks = dim3(queue.multiprocessors() * (kWide ? 1 : 2)),
          .threads = kConsumers + kProducers,
          .shared_bytes = S::kSharedBytes},
         args);
}

}  // namespace cachalot::cuda
