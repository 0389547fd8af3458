// prepare_query and write_window.
#include "backend/cuda/dense_fp8_few.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sparse_attention_keys.h"
#include "backend/cuda/window_rows.cuh"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256;

struct Preparation {
  WindowRows rows;
  __nv_bfloat16* q;
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

// Of a token one block turns the query, whose rotated channels alone are touched: in units of the
// widest type that divides them, so that it takes few instructions. The same one or another makes
// the window row.
template <class Unit>
__global__ void __launch_bounds__(kThreads) prepare_query_kernel(Preparation with) {
  constexpr int kPairs = sizeof(Unit) / sizeof(__nv_bfloat162);
  const WindowRows& of = with.rows;
  extern __shared__ float2 turns[];  // [pairs]
  let_next_start();
  const int64_t token = blockIdx.x;
  if (blockIdx.y == 1) return make_window_row<kThreads>(of, token);
  // Positions came before the step's first kernel: no kernel writes them.
  const int32_t position = of.positions[token];
  for (int i = threadIdx.x; i < of.pairs; i += kThreads)
    turns[i] = turn_at(position, of.frequencies[i]);
  __syncthreads();
  __nv_bfloat16* const turned =
      with.q + token * with.heads * of.head_dim + of.head_dim - 2 * of.pairs;
  const int of_head = of.pairs / kPairs, units = with.heads * of_head;
  const auto unit_at = [&](int unit) {
    return reinterpret_cast<Unit*>(turned + unit / of_head * of.head_dim) + unit % of_head;
  };
  // All that a thread has in the released model is on its way before the first is used.
  constexpr int kAhead = 2;
  for (int first = threadIdx.x; first < max(units, kThreads); first += kAhead * kThreads) {
    Unit* at[kAhead];
    Unit values[kAhead];
    const auto inside = [&](int i) { return first + i * kThreads < units; };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) at[i] = unit_at(first + i * kThreads);
    if (first < kThreads) wait_for_inputs();
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (inside(i)) values[i] = *at[i];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (!inside(i)) break;
      auto* const pairs = reinterpret_cast<__nv_bfloat162*>(&values[i]);
      const float2* const by = turns + (first + i * kThreads) % of_head * kPairs;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const float2 out = rotate_pair(__low2float(pairs[pair]), __high2float(pairs[pair]),
                                       by[pair].x, by[pair].y);
        pairs[pair] = __floats2bfloat162_rn(out.x, out.y);
      }
      *at[i] = values[i];
    }
  }
  if (gridDim.y == 1) make_window_row<kThreads>(of, token);
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
  CACHALOT_CHECK(pairs > 0, "prepare_query: no channels to turn");
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
  const bool has_query = args.q.present();
  // A block for each of both while all run at a time.
  constexpr int64_t kBlocksAtOnce = 2048 / kThreads;
  const bool apart = has_query && 2 * tokens <= kBlocksAtOnce * queue.multiprocessors();
  const int64_t head_dim = args.kv.extent(1);
  const bool wide = has_query && pairs % 4 == 0 && head_dim % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(args.q.data) % sizeof(uint4) == 0;
  launch(queue, "prepare_query",
         wide ? prepare_query_kernel<uint4> : prepare_query_kernel<uint32_t>,
         {.blocks = dim3(static_cast<unsigned>(tokens), apart ? 2 : 1),
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(pairs) * sizeof(float2)},
         Preparation{.rows = window_rows_of(args),
                     .q = has_query ? reinterpret_cast<__nv_bfloat16*>(args.q.data) : nullptr,
                     .heads = has_query ? static_cast<int>(args.q.extent(1)) : 0});
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
