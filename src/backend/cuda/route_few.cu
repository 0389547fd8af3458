// route of few tokens, where waiting is all there is: 3.9 MB of the released router are a
// microsecond of reading, and it can be over before x is there.
//
// A block brings 64 experts' rows of one segment of K into shared memory, before it waits for x. A
// warpgroup multiplies them with 8, 16 or 32 tokens in one chain of wgmma, in the order of
// additions of multiply() (docs/kernels/dense_bf16.md), which other numbers of tokens take. As many
// blocks as there are tokens wait for the sums of all others, add the segments and choose.
//
// Of one token the blocks of all segments make x too, if the queue holds its collapse: a slice of
// the stream is as wide as a segment.
#include <algorithm>

#include "backend/cuda/awaited_sums.cuh"
#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_mixes.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/plan/product_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"
#include "backend/cuda/route_choice.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 384, kWarps = kThreads / 32, kWarpgroups = kThreads / 128;
constexpr int kRows = 64;  // experts of a block
constexpr int kTile = 8;   // tokens that lie together; a chain has one, two or four such tiles
constexpr int kMostTokens = 64;
// Of the released router: constants, for an address made of variables is a dozen instructions in
// front of each copy, and the chain's operands are registers.
constexpr int kDim = 5120, kSegments = 8, kInputs = kDim / kSegments;
constexpr int kPieces = kInputs / 8;  // of 16 bytes, in a row
static_assert(kDim == collapse_order::kDim && kSegments == collapse_order::kSlices);
// Rows of gate: eight of them, which a warp reads at once, lie in different banks.
constexpr int kPitch = kInputs * 2 + 16;
// Rows of x lie in columns of 64 inputs, 128 bytes, swizzled.
constexpr int kPiecesOfColumn = 8;

struct FewRoute {
  Routing routing;
  // [segments][tokens][experts], as leave_sum() leaves them (awaited_sums.cuh).
  uint32_t* sums;
  // The next kernel starts only when all blocks have waited: what is before this kernel has ended.
  bool late = false;

  // Of a block: rows of x in whole tiles, rows of gate, then what the choice needs.
  __host__ __device__ int tiles() const {
    return (static_cast<int>(routing.tokens) + kTile - 1) / kTile;
  }
  __host__ __device__ int gate_at() const { return tiles() * kTile * kInputs * 2; }
  __host__ __device__ int bias_at() const { return gate_at() + kRows * kPitch; }
  __host__ __device__ int shared_bytes() const {
    return 1024 + bias_at() + 3 * kThreads * static_cast<int>(sizeof(float));
  }
};

// 16 bytes a thread at a time.
__device__ void copy_gate(uint32_t to, const bf16* from) {
#pragma unroll 2
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    copy_16_of_line(to + row * kPitch + piece * 16, from + row * kDim + piece * 8);
  }
}
__device__ void copy_x(uint32_t to, const bf16* from, int tokens, int rows) {
#pragma unroll 1
  for (int i = threadIdx.x; i < tokens * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces, column = piece / kPiecesOfColumn;
    copy_16_to(to + (column * rows + row) * 128 + ((piece % kPiecesOfColumn ^ row % 8) << 4),
               from + row * kDim + piece * 8);
  }
}

// The chain of a warpgroup. A comes from registers, which is quicker than from shared memory. Eight
// steps of 16 inputs are loaded at a time, two such parts ahead of what is multiplied.
struct Chain {
  static constexpr int kSteps = 8, kParts = kInputs / 16 / kSteps, kAhead = 3;

  uint32_t parts[kAhead][kSteps][4];
  uint32_t gate;  // this lane's rows

  template <int part>
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t at = gate + (part * kSteps + step) * 32;
      uint32_t(&to)[4] = parts[part % kAhead][step];
      to[0] = load_shared(at);
      to[1] = load_shared(at + 8 * kPitch);
      to[2] = load_shared(at + 16);
      to[3] = load_shared(at + 8 * kPitch + 16);
    }
  }
  // `x`: column 0 of the first tile; `rows`: of all tiles.
  template <int part, int kTokens>
  __device__ __forceinline__ void multiply(float (&sums)[kTokens / 2], const uint8_t* x,
                                           int rows) const {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = part * kSteps + step, column = at / 4;
      const uint64_t b =
          shared_descriptor(x + column * rows * 128, SharedLayout::swizzle_128, 1024);
      wgmma_bf16<kTokens>(sums, parts[part % kAhead][step], advance_descriptor(b, at % 4 * 32),
                          at > 0);
    }
    wgmma_commit();
  }
};

// The sums of kTokens tokens from the first of a tile on with a warpgroup's 64 experts. The chain
// has its first three parts, and has lost them then.
template <int kTokens>
__device__ __forceinline__ void multiply_tokens(Chain& chain, const FewRoute& few,
                                                const uint8_t* shared, int tile, int segment,
                                                int first_expert) {
  const Routing& routing = few.routing;
  const int rows = few.tiles() * kTile, tokens = static_cast<int>(routing.tokens);
  const int thread = threadIdx.x, lane = thread % 32;
  const uint8_t* const x = shared + tile * kTile * 128;
  float sums[kTokens / 2];
  static_assert(Chain::kParts == 5 && Chain::kAhead == 3);
  chain.multiply<0, kTokens>(sums, x, rows);
  chain.multiply<1, kTokens>(sums, x, rows);
  chain.multiply<2, kTokens>(sums, x, rows);
  wgmma_wait<2>();
  chain.load<3>();
  chain.multiply<3, kTokens>(sums, x, rows);
  wgmma_wait<2>();
  chain.load<4>();
  chain.multiply<4, kTokens>(sums, x, rows);
  wgmma_wait<0>();
  wgmma_hold(sums);
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {
    const int token = tile * kTile + i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int expert = first_expert + thread % 128 / 32 * 16 + i / 2 % 2 * 8 + lane / 4;
    // Columns of tokens that are not there are theirs alone.
    if (token < tokens) {
      leave_sum(few.sums + (segment * tokens + token) * routing.experts + expert, sums[i]);
    }
  }
}

// The sum of a token and expert over the segments, once they are there; leaves zeros behind.
__device__ float take_sum(uint32_t* sums, int64_t stride) {
  float parts[kSegments];
  take_sums(parts, sums, stride);
  float sum = parts[0];
#pragma unroll
  for (int s = 1; s < kSegments; ++s) sum += parts[s];
  return sum;
}

// By a warp that has no part of x, behind the wait and before a barrier: what the token before was
// told goes, then the next kernel may start, which looks for it (told_route.cuh).
__device__ void forget_told(const FewRoute& few, int segment, bool x, bool choice) {
  ToldRoute* const told = few.routing.told;
  const int lane = threadIdx.x % 32;
  if (told != nullptr && (x || choice)) {
    auto* const words = reinterpret_cast<uint4*>(told->x + segment * (kInputs / 2));
    if (x)
      for (int i = lane; i < kInputs / 8; i += 32) words[i] = uint4{};
    if (choice && lane < ToldRoute::kMostChoices) told->ids[lane] = told->weights[lane] = 0;
    __threadfence();
    __syncwarp();
  }
  if (lane == 0) let_next_start();
}

// Blocks of groups of 64 experts, of every segment, and behind them those that compute the
// coefficients of the collapse that made x. kCollapses: or makes it here, of the stream that
// `expansion` expands; segments are the blocks of a cluster.
template <bool kCollapses>
__global__ void __launch_bounds__(kThreads)
    route_few_kernel(const FewRoute few, const Mixes mixes, const Expansion expansion) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  const Routing& routing = few.routing;
  const int groups = routing.experts / kRows, blocks = groups * kSegments;
  const int block = static_cast<int>(blockIdx.x), tokens = static_cast<int>(routing.tokens);
  const bool chooses_only = block >= blocks && tokens > kMostMixTokens;
  if (block >= blocks && !chooses_only) {
    return compute_mixes<kThreads, kCollapses>(mixes, block - blocks,
                                               *reinterpret_cast<MixShared*>(dynamic), expansion);
  }
  __shared__ BlockChoice<kWarps> choice;
  __shared__ SliceShared slice;
  if constexpr (kCollapses) {
    begin_slice(slice);
  } else if (!few.late) {
    let_next_start();
  }
  const int thread = threadIdx.x, lane = thread % 32;
  const int group = block / kSegments, segment = block % kSegments;
  const int first_expert = group * kRows;
  uint8_t* const shared = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  auto* const bias = reinterpret_cast<float*>(shared + few.bias_at());
  float* const bias_image = bias + kThreads;
  const uint32_t gate = shared_address(shared) + few.gate_at();
  if (!chooses_only)
    copy_gate(gate, routing.gate + first_expert * int64_t{kDim} + segment * kInputs);
  if (block < tokens && thread < routing.experts / 4) {
    copy_16(bias + thread * 4, routing.bias + thread * 4);
    if (routing.bias_image != nullptr)
      copy_16(bias_image + thread * 4, routing.bias_image + thread * 4);
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  // The same in all lanes, and the compiler knows it: else it serializes the products.
  const int warpgroup = __shfl_sync(~0u, thread / 128, 0);
  Chain chain;
  chain.gate = gate + (thread % 128 / 32 * 16 + lane / 4) * kPitch + lane % 4 * 4;
  chain.load<0>();
  chain.load<1>();
  chain.load<2>();
  // The first block chooses: the last of its segment has time for what nobody waits for.
  const bool writes = kCollapses && group == groups - 1;
  [[maybe_unused]] StreamFour stream = {};
  if constexpr (kCollapses) {
    const Collapse& collapse = mixes.collapse;
    const int four = segment * kSliceThreads + thread;
    const bool has_four = thread < kSliceThreads;
    float4 norm{}, pre{};
    if (has_four && collapse.norm != nullptr) norm = widen(load_four(collapse.norm, four));
    wait_for_inputs();
    if (thread >= kThreads - 32) forget_told(few, segment, writes, block == 0);
    if (has_four) {
      load_stream(stream, collapse.stream, 0, four);
      pre = *reinterpret_cast<const float4*>(collapse.pre_in);
      expand(stream, expansion, 0, four);
    }
    const uint2 x = collapse_slice(stream, pre, collapse.norm, norm, collapse.norm_eps, segment,
                                   slice, [&](float square) {
                                     count_reader(mixes, segment);
                                     if (writes) leave_sum(mixes.stream_squares + segment, square);
                                   });
    if (has_four) {
      const int piece = thread / 2;
      reinterpret_cast<uint2*>(shared + piece / kPiecesOfColumn * kTile * 128 +
                               piece % kPiecesOfColumn * 16)[thread % 2] = x;
      if (writes) {
        if (few.routing.told != nullptr) tell(few.routing.told->x + 2 * four, x);
        store_four(collapse.x, four, x);
      }
    }
  } else {
    wait_for_inputs();
    if (few.late) let_next_start();
    if (!chooses_only)
      copy_x(shared_address(shared), routing.x + segment * kInputs, tokens, few.tiles() * kTile);
    commit_copies();
    wait_copies<0>();
  }
  fence_shared_for_async();
  __syncthreads();

  // As many tokens at a time as make one chain of each warpgroup's work: of more a product takes
  // hardly longer.
  if (!chooses_only) {
    const int tiles = few.tiles();
    if (kCollapses || tiles <= kWarpgroups) {
      if (warpgroup < tiles)
        multiply_tokens<8>(chain, few, shared, warpgroup, segment, first_expert);
    } else if constexpr (!kCollapses) {
      if (tiles <= 2 * kWarpgroups) {
        if (2 * warpgroup < tiles)
          multiply_tokens<16>(chain, few, shared, 2 * warpgroup, segment, first_expert);
      } else if (4 * warpgroup < tiles) {
        multiply_tokens<32>(chain, few, shared, 4 * warpgroup, segment, first_expert);
      }
    }
  }
  for (int token = block; token < tokens; token += static_cast<int>(gridDim.x)) {
    const bool image = routing.bias_image != nullptr && routing.image_index[token] >= 0;
    float sum = 0;
    if (thread < routing.experts)
      sum = take_sum(few.sums + token * routing.experts + thread, tokens * routing.experts);
    choice.choose(routing, token, image ? bias_image : bias, affinity(sum), bias_image + kThreads);
  }
  if (writes) {
    wait_for_readers(mixes, segment, groups + kMixBlocks / kSegments);
    if (thread < kSliceThreads)
      store_stream(expansion.stream, 0, segment * kSliceThreads + thread, stream);
  }
}

// All blocks must run at a time.
LaunchShape shape_of(const FewRoute& few, bool mixes) {
  return {.blocks = static_cast<unsigned>(few.routing.experts / kRows * kSegments +
                                          (mixes ? kMixBlocks : 0)),
          .threads = kThreads,
          .shared_bytes =
              std::max(static_cast<size_t>(few.shared_bytes()), mixes ? sizeof(MixShared) : 0)};
}

// Where none of the blocks writes what another may still read.
std::optional<HeldCollapse> take_collapse(Queue& queue, const RouteArgs& args) {
  return queue.held().take_collapse([&](const HeldCollapse& held) {
    const HyperCollapseArgs& of = held.collapse;
    const HyperExpandArgs& expand = held.expand;
    LaunchShape shape = shape_of(FewRoute{.routing = Routing(args)}, true);
    shape.cluster = kSegments;
    static const int kClusters = most_clusters("route", route_few_kernel<true>, shape);
    return of.x.data == args.x.data && of.x.shape == args.x.shape &&
           !overlap({of.x, of.pre_out, of.post, of.comb}, {of.stream, of.pre_in}) &&
           !overlap({args.ids, args.weights}, {of.stream, of.pre_in, of.x, of.pre_out, of.post,
                                               of.comb, expand.y, expand.post, expand.comb}) &&
           shape.blocks.x <= static_cast<unsigned>(kClusters * kSegments);
  });
}

}  // namespace

bool route_few_takes(const RouteArgs& args) {
  const Routing routing(args);
  return routing.dim == kDim && routing.experts % kRows == 0 && routing.experts <= kThreads &&
         product_segments(1, routing.experts, kDim) == kSegments && routing.tokens <= kMostTokens;
}

void route_few(Queue& queue, const RouteArgs& args) {
  FewRoute few{.routing = Routing(args)};
  static const char kSums = 0, kTold = 0;
  void* sums = queue.kept(&kSums);
  if (sums == nullptr)
    sums = queue.keep(&kSums, nullptr, kSegments * kMostTokens * kThreads * sizeof(uint32_t));
  few.sums = static_cast<uint32_t*>(sums);
  static_assert(kDim <= ToldRoute::kMostDim);
  // Whether it is needed now or not: later a graph may be captured.
  void* told = queue.kept(&kTold);
  if (told == nullptr) told = queue.keep(&kTold, nullptr, sizeof(ToldRoute));
  if (const auto held = take_collapse(queue, args)) {
    LaunchShape shape = shape_of(few, true);
    shape.cluster = kSegments;
    if (few.routing.choices <= ToldRoute::kMostChoices)
      few.routing.told = static_cast<ToldRoute*>(told);
    launch(queue, "route", route_few_kernel<true>, shape, few, mixes_of(queue, held->collapse),
           Expansion(held->expand));
    if (few.routing.told != nullptr) queue.held().note({args, few.routing.told});
    return;
  }
  // What is held makes x: before its coefficients are asked for.
  queue.held().start_collapse(queue);
  std::optional<Mixes> mixes, beside;
  const auto multiprocessors = static_cast<unsigned>(queue.multiprocessors());
  if (few.routing.tokens > kMostMixTokens) {
    beside = queue.held().take_mixes(few.routing.tokens, {args.x, args.ids, args.weights});
    few.late = beside.has_value();
  } else if (shape_of(few, true).blocks.x <= multiprocessors) {
    mixes = queue.held().take_mixes(few.routing.tokens, {args.x, args.ids, args.weights});
  }
  LaunchShape shape = shape_of(few, mixes.has_value());
  // A block a token chooses.
  if (few.routing.tokens > kMostMixTokens)
    shape.blocks = std::max(shape.blocks.x,
                            std::min(static_cast<unsigned>(few.routing.tokens), multiprocessors));
  CACHALOT_CHECK(shape.blocks.x <= multiprocessors, "{} blocks that wait for one another",
                 shape.blocks.x);
  launch(queue, "route", route_few_kernel<false>, shape, few, mixes.value_or(Mixes{}), Expansion());
  if (beside) start_mixes_beside(queue, *beside);
}

}  // namespace cachalot::cuda
