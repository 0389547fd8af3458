// The vision tower between its linear layers, except attention.
#include <cuda_bf16.h>

#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

const Value* values(View<const bf16> view) { return reinterpret_cast<const Value*>(view.data); }
Value* values(View<bf16> view) { return reinterpret_cast<Value*>(view.data); }

constexpr int kThreads = 256;

// kWidth neighbours that one thread reads or writes at once.
template <int kWidth>
struct alignas(sizeof(Value) * kWidth) Pack {
  Value values[kWidth];
};
constexpr int kWidest = 8;  // 16 bytes

template <int kWidth>
__device__ Pack<kWidth>& pack_at(Value* row, int64_t i) {
  return reinterpret_cast<Pack<kWidth>*>(row)[i];
}
template <int kWidth>
__device__ const Pack<kWidth>& pack_at(const Value* row, int64_t i) {
  return reinterpret_cast<const Pack<kWidth>*>(row)[i];
}

// Whether rows of `width` from these addresses on are whole packs of kWidest.
template <class... Pointers>
bool packs(int64_t width, Pointers... pointers) {
  return width % kWidest == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

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

constexpr int kNormThreads = 128;

// The sum over the block, to all its threads, by the same tree whatever the block does.
__device__ float block_sum(float value) {
  __shared__ float sums[kNormThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}

// One block a token; dim in packs.
template <int kWidth>
__global__ void add_and_normalize(const Value* update, const Value* norm, float eps, int64_t dim,
                                  Value* stream, Value* x) {
  wait_for_inputs();
  let_next_start();
  const int64_t first = blockIdx.x * dim;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < dim; i += kNormThreads) {
    Pack<kWidth> sums = pack_at<kWidth>(stream, first + i);
    if (update != nullptr) {
      const Pack<kWidth> added = pack_at<kWidth>(update, first + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sums.values[j] = __float2bfloat16_rn(__bfloat162float(sums.values[j]) +
                                             __bfloat162float(added.values[j]));
      }
      pack_at<kWidth>(stream, first + i) = sums;
    }
#pragma unroll
    for (const Value value : sums.values) {
      squares += __bfloat162float(value) * __bfloat162float(value);
    }
  }
  const float root = __fsqrt_rn(block_sum(squares) / static_cast<float>(dim * kWidth) + eps);
  // Every thread reads back only what it wrote.
  for (int64_t i = threadIdx.x; i < dim; i += kNormThreads) {
    const Pack<kWidth> sums = pack_at<kWidth>(stream, first + i);
    const Pack<kWidth> weights = pack_at<kWidth>(norm, i);
    Pack<kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      out.values[j] = __float2bfloat16_rn(__bfloat162float(weights.values[j]) *
                                          __fdiv_rn(__bfloat162float(sums.values[j]), root));
    }
    pack_at<kWidth>(x, first + i) = out;
  }
}

// Counts and width in packs.
template <int kWidth>
__global__ void gate(const Value* gate_up, int count, int width, Value* h) {
  wait_for_inputs();
  let_next_start();
  for_elements(count, [&](int64_t at) {
    const int i = static_cast<int>(at), token = i / width;
    const int64_t first = i + int64_t{token} * width;  // a row of gate_up is two of h
    const Pack<kWidth> gates = pack_at<kWidth>(gate_up, first);
    const Pack<kWidth> ups = pack_at<kWidth>(gate_up, first + width);
    Pack<kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = __bfloat162float(gates.values[j]);
      const Value silu = __float2bfloat16_rn(x * __fdiv_rn(1.0f, 1.0f + expf(-x)));
      out.values[j] = __float2bfloat16_rn(__bfloat162float(silu) * __bfloat162float(ups.values[j]));
    }
    pack_at<kWidth>(h, i) = out;
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
  const int64_t dim = args.stream.extent(1);
  const bool wide = packs(dim, args.update.data, args.norm.data, args.stream.data, args.x.data);
  launch(queue, "residual_norm", wide ? add_and_normalize<kWidest> : add_and_normalize<1>,
         {.blocks = dim3(static_cast<unsigned>(args.stream.extent(0))), .threads = kNormThreads},
         values(args.update), values(args.norm), args.norm_eps, wide ? dim / kWidest : dim,
         values(args.stream), values(args.x));
}

void gated_unit(Queue& queue, const GatedUnitArgs& args) {
  check_shapes(args);
  const int64_t width = args.h.extent(1);
  const bool wide = packs(width, args.gate_up.data, args.h.data);
  const int64_t pack = wide ? kWidest : 1, count = args.h.elements() / pack;
  CACHALOT_CHECK(count <= INT32_MAX, "{} elements", args.h.elements());
  launch(queue, "gated_unit", wide ? gate<kWidest> : gate<1>, over_elements(queue, count),
         values(args.gate_up), static_cast<int>(count), static_cast<int>(width / pack),
         values(args.h));
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
