// The vision tower between its linear layers, except attention.
#include <cuda_bf16.h>

#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

const Value* values(View<const bf16> view) { return reinterpret_cast<const Value*>(view.data); }
Value* values(View<bf16> view) { return reinterpret_cast<Value*>(view.data); }

constexpr int kThreads = 256;

// Blocks that go over `count` elements, one a thread, at most so many that every multiprocessor is
// full.
LaunchShape over_elements(const Queue& queue, int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads, full = queue.multiprocessors() * 8;
  return {.blocks = dim3(static_cast<unsigned>(blocks < full ? blocks : full)),
          .threads = kThreads};
}

// For element i of the thread's share.
template <class Visit>
__device__ void for_elements(int64_t count, Visit visit) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    visit(i);
  }
}

// The sum over the block, to all its threads, by the same tree whatever the block does.
__device__ float block_sum(float value) {
  __shared__ float sums[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}

// One block a token.
__global__ void add_and_normalize(const Value* update, const Value* norm, float eps, int64_t dim,
                                  Value* stream, Value* x) {
  wait_for_inputs();
  const int64_t at = blockIdx.x * dim;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < dim; i += kThreads) {
    float value = __bfloat162float(stream[at + i]);
    if (update != nullptr) {
      const Value sum = __float2bfloat16_rn(value + __bfloat162float(update[at + i]));
      stream[at + i] = sum;
      value = __bfloat162float(sum);
    }
    squares += value * value;
  }
  const float root = __fsqrt_rn(block_sum(squares) / static_cast<float>(dim) + eps);
  // Every thread reads back only what it wrote.
  for (int64_t i = threadIdx.x; i < dim; i += kThreads) {
    const float value = __bfloat162float(stream[at + i]);
    x[at + i] = __float2bfloat16_rn(__bfloat162float(norm[i]) * __fdiv_rn(value, root));
  }
}

__global__ void gate(const Value* gate_up, int64_t count, int64_t width, Value* h) {
  wait_for_inputs();
  for_elements(count, [&](int64_t i) {
    const Value* row = gate_up + i / width * 2 * width + i % width;
    const float x = __bfloat162float(row[0]);
    const Value silu = __float2bfloat16_rn(x * __fdiv_rn(1.0f, 1.0f + expf(-x)));
    h[i] = __float2bfloat16_rn(__bfloat162float(silu) * __bfloat162float(row[width]));
  });
}

struct Cells {
  const Value* x;
  int64_t rows, columns, ratio, dim;
  int64_t cell_columns, count;
  Value* cells;
};

__global__ void unfold(const Cells of) {
  wait_for_inputs();
  for_elements(of.count, [&](int64_t at) {
    const int64_t patches = of.ratio * of.ratio;
    const int64_t cell = at / (of.dim * patches), i = at % (of.dim * patches);
    const int64_t row = cell / of.cell_columns * of.ratio + i / of.ratio % of.ratio;
    const int64_t column = cell % of.cell_columns * of.ratio + i % of.ratio;
    const bool inside = row < of.rows && column < of.columns;
    of.cells[at] = inside ? of.x[(row * of.columns + column) * of.dim + i / patches] : Value(0.0f);
  });
}

__global__ void apply_gelu(Value* x, int64_t count) {
  wait_for_inputs();
  for_elements(count, [&](int64_t i) {
    const float value = __bfloat162float(x[i]);
    const float inner = 1 + erff(__fdiv_rn(value, __fsqrt_rn(2.0f)));
    x[i] = __float2bfloat16_rn(value * 0.5f * inner);
  });
}

}  // namespace

void residual_norm(Queue& queue, const ResidualNormArgs& args) {
  check_shapes(args);
  const auto tokens = static_cast<unsigned>(args.stream.extent(0));
  launch(queue, "residual_norm", add_and_normalize, {.blocks = dim3(tokens), .threads = kThreads},
         values(args.update), values(args.norm), args.norm_eps, args.stream.extent(1),
         values(args.stream), values(args.x));
}

void gated_unit(Queue& queue, const GatedUnitArgs& args) {
  check_shapes(args);
  const int64_t count = args.h.elements();
  launch(queue, "gated_unit", gate, over_elements(queue, count), values(args.gate_up), count,
         args.h.extent(1), values(args.h));
}

void unfold_cells(Queue& queue, const UnfoldCellsArgs& args) {
  check_shapes(args);
  const Cells of{.x = values(args.x),
                 .rows = args.x.extent(0) / args.columns,
                 .columns = args.columns,
                 .ratio = args.ratio,
                 .dim = args.x.extent(1),
                 .cell_columns = (args.columns + args.ratio - 1) / args.ratio,
                 .count = args.cells.elements(),
                 .cells = values(args.cells)};
  launch(queue, "unfold_cells", unfold, over_elements(queue, of.count), of);
}

void gelu(Queue& queue, const GeluArgs& args) {
  check_shapes(args);
  const int64_t count = args.x.elements();
  launch(queue, "gelu", apply_gelu, over_elements(queue, count), values(args.x), count);
}

}  // namespace cachalot::cuda
