// sparse_attention for 64 heads of 512 channels on the tensor cores
// (docs/kernels/sparse_attention_cuda.md).
//
// The heads of a token share every key, so they are the N = 64 columns of its products: S^T = K .
// q^T, then O^T = K^T . P^T. Keys are the operand from registers, where packed rows are decoded; q
// and P lie in shared memory. The contract's maximum is over all keys, so all scores come first and
// stay in registers; the keys are decoded twice. Per block two warpgroups decode and multiply; of
// two others six warps copy packed rows into a ring of stages, far ahead, through both products and
// on into the next token of the block, and two prepare that token.
//
// kBlocks blocks of a cluster may share a token. Each computes the scores of its share of the keys
// over all channels and hands P to the others; then each computes its share of the channels over
// all keys. So every score and every output is one sum in one order for any kBlocks.
//
// Scale: decoded values are times 2^-56, with which all scales fit BF16; scores and outputs are
// multiplied by 2^56, all of it exact.
#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sparse_attention.h"
#include "backend/cuda/sparse_attention_producers.h"
#include "backend/cuda/sparse_attention_scores.h"
#include "backend/cuda/sparse_attention_values.h"
#include "backend/cuda/tensor_map.h"

namespace cachalot::cuda {
namespace tiles {
namespace {

// P is in this block's shared memory, and on its way to the others'; so are its sums now. By all
// consumers.
template <int kBlocks>
__device__ void share_weights(Shared& shared, const Slots& slots, int rank) {
  fence_shared_for_async();
  consumers_meet();
  if (threadIdx.x == 0) barrier_arrive(&shared.weights_there);
  if constexpr (kBlocks > 1) {
    using V = Values<kBlocks>;
    constexpr int kSumBytes = kHeads * sizeof(uint32_t);
    // A warp for each block: a warp starts copies one after the other.
    const int block = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0 || block >= kBlocks || block == rank) return;
    const auto share_of = [&](int which) {
      return attention_share(slots.window_groups(), slots.groups(), kBlocks, which);
    };
    const AttentionShare theirs = share_of(block), own = share_of(rank);
    barrier_expect(&shared.weights_from[block],
                   (theirs.end - theirs.begin) * V::kGroupBytes + kSumBytes);
    const uint32_t there = address_in_block(&shared.weights_from[rank], block);
    if (!kSendsAhead<kBlocks> && own.end > own.begin) {
      const uint8_t* from =
          shared.weights + V::head_part(block) * V::kPartBytes + own.begin * V::kGroupBytes;
      copy_to_block(address_in_block(from, block), from, (own.end - own.begin) * V::kGroupBytes,
                    there);
    }
    copy_to_block(address_in_block(shared.sums[rank], block), shared.sums[rank], kSumBytes, there);
  }
}

// Whether a token's keys are looked up and copied one by one, or packed (plan/packed_keys.h).
enum class Keys { rows, packed, packed_window };

template <int kBlocks, Keys keys>
__device__ void consume(const AttentionParameters& of, const CUtensorMap& queries, Shared& shared,
                        int rank, int token, int stride, int tokens) {
  const Place at;
  if constexpr (keys == Keys::rows) {
    wait_for_inputs();
    let_next_start();
    if constexpr (kBlocks == 1) {
      order_query(of, shared, token);
    } else {
      bring_first_query(queries, shared, token);
    }
  } else {
    bring_packed_query(of, shared);
  }
  int read = 0;
#pragma unroll 1
  for (int turn = 0; token < tokens; ++turn, token += stride) {
    barrier_wait(&shared.token_there, turn & 1);
    const Slots slots = keys == Keys::rows ? shared.slots[turn % 2] : packed_slots(of);
    {
      Scores<kBlocks> scores(shared, turn % 2, slots, at, rank);
      if constexpr (keys == Keys::rows) {
        scores.template multiply<kWholeRows<kBlocks>>(read);
      } else {
        barrier_wait(&shared.query_there, 0);
        scores.multiply_packed();
      }
      scores.find_largest();
      scores.weigh(of.scale * kValueScaleInverse * 1.4426950408889634f);
      share_weights<kBlocks>(shared, slots, rank);
    }
    Products<kBlocks> products(shared, slots, at, rank);
    if constexpr (keys == Keys::rows) {
      products.multiply(read);
    } else {
      products.template multiply_packed<keys == Keys::packed>();
    }
    // This block has all it is sent.
    if constexpr (kBlocks > 1) cluster_arrive_without_writes();
    barrier_wait(&shared.output_ready, turn & 1);
    products.write(of, token);
  }
}

template <int kBlocks, Keys keys>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ AttentionParameters of,
                     const __grid_constant__ CUtensorMap queries, int tokens) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int rank = blockIdx.x % kBlocks;
  const int token = blockIdx.x / kBlocks, stride = gridDim.x / kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], keys == Keys::rows ? 32 : 1);
      barrier_init(&shared.empty[i], kConsumerWarps);
    }
    for (Barrier& barrier : shared.rows_there) barrier_init(&barrier, kProducers);
    for (Barrier& barrier : shared.parts_there) barrier_init(&barrier, 1);
    barrier_init(&shared.keys_there, Producer<kBlocks>::kHelpers);
    barrier_init(&shared.keys_taken, Producer<kBlocks>::kCopiers * 32);
    barrier_init(&shared.query_there, 1);
    barrier_init(&shared.token_there, Producer<kBlocks>::kHelpers);
    barrier_init(&shared.largest_there, 1);
    barrier_init(&shared.weights_there, 1);
    barrier_init(&shared.output_ready, Producer<kBlocks>::kHelpers);
    for (Barrier& barrier : shared.weights_from) barrier_init(&barrier, 1);
    fence_barrier_init();
    if (kBlocks > 1) barrier_expect(&shared.largest_there, (kBlocks - 1) * kHeads * sizeof(float));
  }
  if (threadIdx.x < kHeads) shared.sums[rank][threadIdx.x] = 0;
  __syncthreads();
  if constexpr (kBlocks > 1) cluster_arrive();
  // Whoever reads what is not settled waits for the kernel's inputs.
  if (uniform(threadIdx.x / kConsumers) != 0) {
    // The registers of 512 threads, 128 each, are all there are to hand over.
    give_registers<32>();
    Producer<kBlocks> producer(of, queries, shared, rank);
    if constexpr (keys == Keys::rows) {
      producer.run(tokens);
    } else {
      producer.run_with_packed();
    }
    if constexpr (kBlocks > 1) cluster_arrive_without_writes();
  } else {
    take_registers<224>();
    consume<kBlocks, keys>(of, queries, shared, rank, token, stride, tokens);
  }
  // All blocks have what they are sent, so all this one sent has been read.
  if constexpr (kBlocks > 1) cluster_wait();
}

template <int kBlocks>
LaunchShape launch_shape(int64_t blocks) {
  return {.blocks = static_cast<unsigned>(blocks),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared),
          .cluster = kBlocks};
}

template <int kBlocks, Keys keys = Keys::rows>
void start(Queue& queue, const AttentionParameters& of, int64_t tokens) {
  // A block alone goes on with other tokens; a cluster has one.
  const int64_t blocks =
      kBlocks == 1 ? std::min<int64_t>(tokens, queue.multiprocessors()) : tokens * kBlocks;
  const CUtensorMap queries = tensor_map(of.q, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                .rows = tokens * kHeads,
                                                .columns = kChannels,
                                                .row_bytes = kChannels * sizeof(__nv_bfloat16),
                                                .box_rows = kHeads,
                                                .box_columns = 64});
  launch(queue, "sparse_attention", attention_kernel<kBlocks, keys>, launch_shape<kBlocks>(blocks),
         of, queries, static_cast<int>(tokens));
}

template <int kBlocks>
int64_t room_for_clusters() {
  return most_clusters("sparse_attention", attention_kernel<kBlocks, Keys::rows>,
                       launch_shape<kBlocks>(kBlocks));
}

}  // namespace
}  // namespace tiles

bool sparse_attention_fits_tiles(const SparseAttentionArgs& args) {
  const int64_t chosen = args.chosen.present() ? args.chosen.extent(1) : 0;
  return args.q.extent(1) == kAttentionHeads && args.q.extent(2) == kAttentionChannels &&
         args.frequencies.extent(0) == kAttentionPairs &&
         attention_tiles(args.window + args.block, 0) <= kAttentionMostWindowTiles &&
         attention_tiles(args.window + args.block, chosen) <= kAttentionMostTiles;
}

int sparse_attention_blocks(int64_t tokens) {
  static const AttentionRoom kRoom{.of_two = tiles::room_for_clusters<2>(),
                                   .of_four = tiles::room_for_clusters<4>(),
                                   .of_eight = tiles::room_for_clusters<8>()};
  return attention_blocks_per_token(tokens, kRoom);
}

void sparse_attention_in_tiles(Queue& queue, const SparseAttentionArgs& args, int blocks) {
  AttentionParameters of = attention_parameters(args);
  of.settled = queue.held().settled({args.ring, args.chosen, args.latents.rows});
  const int64_t tokens = args.rows.tokens();
  switch (blocks) {
    case 8:
      return tiles::start<8>(queue, of, tokens);
    case 4:
      return tiles::start<4>(queue, of, tokens);
    case 2:
      return tiles::start<2>(queue, of, tokens);
    default:
      return tiles::start<1>(queue, of, tokens);
  }
}

void sparse_attention_of_packed(Queue& queue, const AttentionParameters& of) {
  if (of.chosen_count > 0) {
    tiles::start<kAttentionMostBlocks, tiles::Keys::packed>(queue, of, 1);
  } else {
    tiles::start<kAttentionMostBlocks, tiles::Keys::packed_window>(queue, of, 1);
  }
}

}  // namespace cachalot::cuda
