// route of few tokens, where waiting is all there is: 3.9 MB of the released router are a
// microsecond of reading, and it can be over before x is there.
//
// A block has 16 experts' rows of two segments of K in its shared memory, copied before it waits
// for x. A warp multiplies a segment with eight tokens in a chain of mma.sync, which gives the bits
// of the wgmma that other numbers of tokens take (docs/kernels/dense_bf16.md). Then as many blocks
// as there are tokens wait for all others, add the segments and choose.
#include "backend/cuda/launch.h"
#include "backend/cuda/plan/product_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/mma_bf16.h"
#include "backend/cuda/ptx/row_copies.h"
#include "backend/cuda/route_choice.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 384, kWarps = kThreads / 32;
constexpr int kRows = 16;  // experts of a block
constexpr int kTile = 8;   // tokens of a chain
constexpr int kMostTokens = 64;
constexpr int kSegmentsOfBlock = 2;
constexpr int kMostSegments = 8;  // product_segments()
// What a block may have: it is the only one of its multiprocessor then.
constexpr int kMostSharedBytes = 224 << 10;

struct FewRoute {
  Routing routing;
  int segments, segment_inputs;
  float* sums;        // [segments][tokens][experts]
  int32_t* finished;  // blocks that have added to the sums; blocks that have chosen

  // Of a block: rows of gate, then rows of x in whole tiles. 16 bytes between them, so that the
  // eight rows that a warp reads at once lie in different banks: segments are of a multiple of 128
  // inputs. Then the biases.
  __host__ __device__ int tiles() const {
    return (static_cast<int>(routing.tokens) + kTile - 1) / kTile;
  }
  __host__ __device__ int pitch() const { return kSegmentsOfBlock * segment_inputs * 2 + 16; }
  __host__ __device__ int bias_at() const { return (kRows + tiles() * kTile) * pitch(); }
  __host__ __device__ int shared_bytes() const {
    return bias_at() + 2 * routing.experts * static_cast<int>(sizeof(float));
  }
};

// 16 bytes a thread at a time.
__device__ void copy_rows(uint32_t to, int pitch, const bf16* from, int rows, int64_t row_inputs,
                          int inputs) {
  const int pieces = inputs / 8;
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * pieces; i += kThreads) {
    const int row = i / pieces, piece = i % pieces;
    copy_16_of_line(to + row * pitch + piece * 16, from + row * row_inputs + piece * 8);
  }
}

// What a lane has of four steps of K: loaded while the four before are multiplied, for a step waits
// for the one before it, and would wait for its operands as well.
struct Operands {
  static constexpr int kSteps = 4;
  static constexpr uint32_t kBytes = kSteps * 32;  // of a row

  uint32_t rows[kSteps][4], columns[kSteps][2];

  __device__ void load(uint32_t a, uint32_t b, int pitch) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i, a += 32, b += 32) {
      rows[i][0] = load_shared(a);
      rows[i][1] = load_shared(a + 8 * pitch);
      rows[i][2] = load_shared(a + 16);
      rows[i][3] = load_shared(a + 8 * pitch + 16);
      columns[i][0] = load_shared(b);
      columns[i][1] = load_shared(b + 16);
    }
  }
  __device__ void add_to(float (&sums)[4]) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) mma_bf16(sums, rows[i], columns[i]);
  }
};

// Until `count` blocks have arrived. All blocks of the grid run at once: they are fewer than the
// multiprocessors, and the next kernel's start only after all of these have.
__device__ void wait_for_blocks(const int32_t* arrived, int count) {
  if (threadIdx.x == 0) {
    while (*static_cast<const volatile int32_t*>(arrived) < count) {
    }
    __threadfence();
  }
  __syncthreads();
}

// Blocks (groups of 16 experts, pairs of segments).
__global__ void __launch_bounds__(kThreads) route_few_kernel(const FewRoute few) {
  extern __shared__ uint8_t shared[];
  let_next_start();
  const Routing& routing = few.routing;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int tokens = static_cast<int>(routing.tokens);
  const int first_expert = static_cast<int>(blockIdx.x) * kRows;
  const int first_segment = static_cast<int>(blockIdx.y) * kSegmentsOfBlock;
  const int64_t first_input = int64_t{first_segment} * few.segment_inputs;
  const int inputs = kSegmentsOfBlock * few.segment_inputs, pitch = few.pitch();
  const int block = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x * gridDim.y);
  const uint32_t gate = shared_address(shared), x = gate + kRows * pitch;
  const uint32_t bias = gate + few.bias_at(), bias_image = bias + routing.experts * 4;
  copy_rows(gate, pitch, routing.gate + first_expert * int64_t{routing.dim} + first_input, kRows,
            routing.dim, inputs);
  if (block < tokens && thread < routing.experts / 4) {
    copy_16_to(bias + thread * 16, routing.bias + thread * 4);
    if (routing.bias_image != nullptr)
      copy_16_to(bias_image + thread * 16, routing.bias_image + thread * 4);
  }
  wait_for_inputs();
  copy_rows(x, pitch, routing.x + first_input, tokens, routing.dim, inputs);
  commit_copies();
  wait_copies<0>();
  __syncthreads();

  const int row = lane / 4, c = lane % 4, segment = warp % kSegmentsOfBlock;
  for (int tile = warp / kSegmentsOfBlock; tile < few.tiles(); tile += kWarps / kSegmentsOfBlock) {
    const uint32_t at = segment * few.segment_inputs * 2 + row * pitch + c * 4;
    const uint32_t a = gate + at, b = x + tile * kTile * pitch + at;
    // Columns of tokens that are not there are theirs alone.
    float sums[4] = {};
    Operands some, others;
    some.load(a, b, pitch);
    for (uint32_t k = 0; k < few.segment_inputs * 2u; k += 2 * Operands::kBytes) {
      others.load(a + k + Operands::kBytes, b + k + Operands::kBytes, pitch);
      some.add_to(sums);
      // The last time these are bytes behind the segment, which nobody adds.
      some.load(a + k + 2 * Operands::kBytes, b + k + 2 * Operands::kBytes, pitch);
      others.add_to(sums);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = tile * kTile + c * 2 + i % 2, expert = first_expert + i / 2 * 8 + row;
      if (token < tokens)
        few.sums[((first_segment + segment) * tokens + token) * routing.experts + expert] = sums[i];
    }
    __threadfence();
  }
  __syncthreads();
  if (thread == 0) atomicAdd(&few.finished[0], 1);
  if (block >= tokens) return;

  // In place of the rows: this block does not read them any more.
  auto* affinities = reinterpret_cast<float*>(shared);
  const auto* biases = reinterpret_cast<const float*>(shared + few.bias_at());
  wait_for_blocks(&few.finished[0], blocks);
  for (int token = block; token < tokens; token += blocks) {
    if (thread < routing.experts) {
      float of_segments[kMostSegments];
#pragma unroll
      for (int s = 0; s < kMostSegments; ++s)
        if (s < few.segments)
          of_segments[s] = __ldcg(few.sums + (s * tokens + token) * routing.experts + thread);
      float sum = of_segments[0];
#pragma unroll
      for (int s = 1; s < kMostSegments; ++s)
        if (s < few.segments) sum += of_segments[s];
      affinities[thread] = affinity(sum);
    }
    __syncthreads();
    if (warp == 0) {
      const bool image = routing.bias_image != nullptr && routing.image_index[token] >= 0;
      choose_experts<kFewExpertsOfLane>(routing, token, biases + (image ? routing.experts : 0),
                                        [&](int e) { return affinities[e]; });
    }
    __syncthreads();
  }
  // The last to choose leaves zeros behind.
  if (thread == 0 && atomicAdd(&few.finished[1], 1) == min(tokens, blocks) - 1)
    few.finished[0] = few.finished[1] = 0;
}

FewRoute few_route(const Routing& routing) {
  const int segments = product_segments(1, routing.experts, routing.dim);
  return {.routing = routing,
          .segments = segments,
          .segment_inputs = routing.dim / segments,
          .sums = nullptr,
          .finished = nullptr};
}

}  // namespace

bool route_few_takes(const RouteArgs& args) {
  const FewRoute few = few_route(Routing(args));
  const int dim = few.routing.dim, experts = few.routing.experts;
  return experts % kRows == 0 && experts <= kThreads && dim % kProductChunk == 0 &&
         dim / kProductChunk % few.segments == 0 && few.segments % kSegmentsOfBlock == 0 &&
         few.routing.tokens <= kMostTokens && few.shared_bytes() <= kMostSharedBytes;
}

void route_few(Queue& queue, const RouteArgs& args) {
  FewRoute few = few_route(Routing(args));
  const dim3 blocks(few.routing.experts / kRows, few.segments / kSegmentsOfBlock);
  CACHALOT_CHECK(blocks.x * blocks.y <= static_cast<unsigned>(queue.multiprocessors()),
                 "{} blocks that wait for one another", blocks.x * blocks.y);
  Scratch scratch(queue);
  few.sums = scratch.allocate<float>(few.segments * few.routing.tokens * few.routing.experts);
  few.finished = queue.counters();
  launch(queue, "route", route_few_kernel,
         {.blocks = blocks,
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(few.shared_bytes())},
         few);
}

}  // namespace cachalot::cuda
