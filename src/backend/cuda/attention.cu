// prepare_query and write_window.
#include "backend/cuda/dense_fp8_few.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sparse_attention_keys.h"
#include "backend/cuda/window_rows.cuh"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct Preparation {
  WindowRows rows;
  __nv_bfloat16* q;  // may be nullptr
  int heads;
};

WindowRows window_rows_of(const PrepareQueryArgs& args) {
  return {.positions = args.rows.positions.data,
          .frequencies = args.frequencies.data,
          .pairs = static_cast<int>(args.frequencies.extent(0)),
          .head_dim = static_cast<int>(args.kv.extent(1)),
          .kv = reinterpret_cast<const __nv_bfloat16*>(args.kv.data),
          .rows = args.window_rows.data,
          .row_bytes = static_cast<int>(args.window_rows.extent(1))};
}

// A block per token. Of q only the rotated channels are touched.
__global__ void __launch_bounds__(kThreads) prepare_query_kernel(Preparation with) {
  const WindowRows& of = with.rows;
  extern __shared__ float2 turns[];  // [pairs]
  let_next_start();
  const int64_t token = blockIdx.x;
  // Positions came before the step's first kernel: no kernel writes them.
  const int32_t position = of.positions[token];
  for (int i = threadIdx.x; i < of.pairs; i += kThreads) {
    turns[i] = turn_at(position, of.frequencies[i]);
  }
  wait_for_inputs();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const __nv_bfloat16* kv = of.kv + token * of.head_dim;
  // Everything a thread loads is on its way before the first value is used.
  constexpr int kGroups = 2, kHeads = 8;
  const int groups = of.head_dim / 32;
  const auto turn_of = [&](int group) {
    const int turned = of.turned_channel(group * 32 + lane);
    return turned >= 0 ? turns[turned / 2] : float2{};
  };
  float values[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = warp + i * kWarps;
    values[i] = group < groups ? __bfloat162float(kv[group * 32 + lane]) : 0.0f;
  }
  auto* heads = with.q == nullptr ? nullptr
                                  : reinterpret_cast<__nv_bfloat162*>(
                                        with.q + token * with.heads * of.head_dim + of.head_dim) -
                                        of.pairs;
  const int stride = of.head_dim / 2;
  const int head_count = with.q == nullptr ? 0 : with.heads;
  __nv_bfloat162 first[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = warp + i * kWarps;
    if (head < head_count && lane < of.pairs) first[i] = heads[head * stride + lane];
  }
  __syncthreads();
  const auto rotate_at = [&](int head, int pair, __nv_bfloat162 value) {
    const float2 turn = turns[pair];
    const float2 out = rotate_pair(__low2float(value), __high2float(value), turn.x, turn.y);
    heads[head * stride + pair] = __floats2bfloat162_rn(out.x, out.y);
  };
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = warp + i * kWarps;
    if (head < head_count && lane < of.pairs) rotate_at(head, lane, first[i]);
  }
  // What more than 64 heads or 32 pairs leave.
  for (int head = warp; head < head_count; head += kWarps) {
    for (int pair = lane + (head < kHeads * kWarps ? 32 : 0); pair < of.pairs; pair += 32) {
      rotate_at(head, pair, heads[head * stride + pair]);
    }
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = warp + i * kWarps;
    if (group < groups) quantize_group(of, token, group, values[i], turn_of(group));
  }
  for (int group = warp + kGroups * kWarps; group < groups; group += kWarps) {
    quantize_group(of, token, group, __bfloat162float(kv[group * 32 + lane]), turn_of(group));
  }
}

// A block per token; rows in units of the widest type that divides them.
template <class Unit>
__global__ void write_window_kernel(WindowWrite of) {
  let_next_start();
  wait_for_inputs();
  write_window_row<Unit>(of, blockIdx.x);
}

}  // namespace

void start_queries(Queue& queue, const HeldQueries& queries, const AttentionParameters& keys) {
  const LinearArgs& product = queries.product;
  linear_fp8_few_turned(queue, product.weight, product.x.data, product.y.data,
                        window_rows_of(queries.turn), product.x.extent(0), keys,
                        queries.compression);
}

void start_alone(Queue& queue, const HeldQueries& queries) { start_queries(queue, queries, {}); }

void prepare_query(Queue& queue, const PrepareQueryArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), pairs = args.frequencies.extent(0);
  // The product that makes q turns it too.
  const auto product = queue.held().take<LinearArgs>([&](const LinearArgs& held) {
    return args.q.present() && held.y.data == args.q.data && held.norm.absent() &&
           held.bias.absent() && held.x.extent(0) == tokens &&
           held.y.elements() == args.q.elements() && fits_turning(held.weight, tokens) &&
           !overlap({held.y}, {args.kv}) && !overlap({args.window_rows}, {held.x, held.y});
  });
  if (product) {
    const HeldQueries queries{*product, args,
                              queue.held().take_compression(tokens, {product->x, args.kv},
                                                            {product->y, args.window_rows})};
    if (tokens > 1) return start_alone(queue, queries);
    return queue.held().hold(queue, queries);
  }
  launch(
      queue, "prepare_query", prepare_query_kernel,
      {.blocks = static_cast<unsigned>(tokens),
       .threads = kThreads,
       .shared_bytes = static_cast<size_t>(pairs) * sizeof(float2)},
      Preparation{.rows = window_rows_of(args),
                  .q = args.q.present() ? reinterpret_cast<__nv_bfloat16*>(args.q.data) : nullptr,
                  .heads = args.q.present() ? static_cast<int>(args.q.extent(1)) : 0});
}

// What follows, a product of the attention's output, can write the few rows beside it.
void write_window(Queue& queue, const WriteWindowArgs& args) {
  check_shapes(args);
  queue.held().note_written(args.ring);
  queue.held().hold(queue, args);
}

void start_alone(Queue& queue, const WriteWindowArgs& args) {
  const WindowWrite of(args);
  const LaunchShape shape{.blocks = static_cast<unsigned>(args.rows.tokens()), .threads = 64};
  if (of.wide) {
    launch(queue, "write_window", write_window_kernel<uint4>, shape, of);
  } else {
    launch(queue, "write_window", write_window_kernel<uint8_t>, shape, of);
  }
}

}  // namespace cachalot::cuda
