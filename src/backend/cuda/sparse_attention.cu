// sparse_attention: the choice of a kernel, and the one for every shape.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>

#include "backend/cuda/launch.h"
#include "backend/cuda/plan/attention_plan.h"
#include "backend/cuda/plan/packed_keys.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/sparse_attention.h"
#include "backend/cuda/sparse_attention_keys.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

__device__ float e4m3_value(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

__device__ float e8m0_value(uint8_t code) {
  return __uint_as_float(code == 0 ? 0x00400000u : uint32_t{code} << 23);
}

__device__ float window_value(const uint8_t* row, int head_dim, int channel) {
  return e4m3_value(row[channel]) * e8m0_value(row[head_dim + channel / 32]);
}

__device__ float latent_value(const uint8_t* row, int head_dim, int channel) {
  const int code = row[channel / 2] >> (channel % 2 * 4) & 15;
  // 0, 0.5, 1, 1.5, 2, 3, 4, 6: one bit of mantissa, subnormal below 1.
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float magnitude =
      exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                    : static_cast<float>(2 + mantissa) * 0.25f * static_cast<float>(1 << exponent);
  return (code & 8 ? -magnitude : magnitude) * e4m3_value(row[head_dim / 2 + channel / 16]);
}

// The sum of a value over the block, or its maximum: the same bits in all threads.
template <class Combine>
__device__ float over_block(float value, float* shared, Combine combine) {
  for (int step = 16; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(~0u, value, step));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, shared[warp]);
  return value;
}

// A block per token and head; lanes over channels for the scores, threads over channels for the
// values. Dynamic shared memory: keys' rows, scores, q and then o.
__global__ void __launch_bounds__(kThreads)
    sparse_attention_kernel(AttentionParameters of, int most_keys) {
  extern __shared__ const uint8_t* rows[];
  auto* scores = reinterpret_cast<float*>(rows + most_keys);
  float* q = scores + most_keys;
  __shared__ float exchange[kWarps];
  wait_for_inputs();
  let_next_start();
  const int head = blockIdx.y, head_dim = of.head_dim;
  const int64_t token = blockIdx.x;
  const int64_t at = (token * of.heads + head) * head_dim;
  const WindowOfToken window = window_of(of, token_of_step(of, token));
  int latents = 0;
  for (int i = threadIdx.x; i < window.count; i += kThreads) rows[i] = window_key(of, window, i);
  for (int first = 0; first < of.chosen_count; first += kThreads) {
    const int i = first + threadIdx.x;
    const int32_t entry = i < of.chosen_count ? of.chosen[token * of.chosen_count + i] : -1;
    if (entry >= 0) {
      const int32_t index = entry / of.rows_per_page;
      rows[window.count + i] =
          latent_key(of, page_of(of, window.slot, index), entry - index * of.rows_per_page);
    }
    latents += __syncthreads_count(entry >= 0);
  }
  for (int i = threadIdx.x; i < head_dim; i += kThreads) q[i] = __bfloat162float(of.q[at + i]);
  __syncthreads();

  const int keys = window.count + latents;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float largest = -INFINITY;
  for (int key = warp; key < keys; key += kWarps) {
    float sum = 0;
    for (int i = lane; i < head_dim; i += 32) {
      const float value = key < window.count ? window_value(rows[key], head_dim, i)
                                             : latent_value(rows[key], head_dim, i);
      sum = fmaf(q[i], value, sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const float score = sum * of.scale;
    if (lane == 0) scores[key] = score;
    largest = fmaxf(largest, score);
  }
  largest = over_block(largest, exchange, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int key = threadIdx.x; key < keys; key += kThreads) {
    const float e = expf(scores[key] - largest);
    scores[key] = __bfloat162float(__float2bfloat16_rn(e));
    sum += e;
  }
  sum = over_block(sum, exchange, [](float a, float b) { return a + b; });
  const float denominator = sum + expf(of.sink[head] - largest);
  for (int i = threadIdx.x; i < head_dim; i += kThreads) {
    float value = 0;
    for (int key = 0; key < keys; ++key) {
      value = fmaf(scores[key],
                   key < window.count ? window_value(rows[key], head_dim, i)
                                      : latent_value(rows[key], head_dim, i),
                   value);
    }
    // A row without keys gives zeros.
    q[i] = keys == 0 ? 0.0f : __bfloat162float(__float2bfloat16_rn(__fdiv_rn(value, denominator)));
  }
  __syncthreads();
  const int still = head_dim - 2 * of.pairs;
  for (int pair = threadIdx.x; pair < head_dim / 2; pair += kThreads) {
    float2 out{q[2 * pair], q[2 * pair + 1]};
    if (2 * pair >= still) {
      const float2 turn = turn_at(of.positions[token], of.frequencies[pair - still / 2]);
      out = rotate_pair(out.x, out.y, turn.x, -turn.y);
    }
    reinterpret_cast<__nv_bfloat162*>(of.o + at)[pair] = __floats2bfloat162_rn(out.x, out.y);
  }
}

}  // namespace

AttentionParameters attention_parameters(const SparseAttentionArgs& args) {
  AttentionParameters of{.positions = args.rows.positions.data,
                         .slots = args.rows.slots.data,
                         .first_rows = args.rows.first_rows.data,
                         .window_rows = args.window_rows.data,
                         .ring = args.ring.data,
                         .q = reinterpret_cast<const __nv_bfloat16*>(args.q.data),
                         .o = reinterpret_cast<__nv_bfloat16*>(args.o.data),
                         .sink = args.sink.data,
                         .frequencies = args.frequencies.data,
                         .scale = args.scale,
                         .heads = static_cast<int>(args.q.extent(1)),
                         .head_dim = static_cast<int>(args.q.extent(2)),
                         .pairs = static_cast<int>(args.frequencies.extent(0)),
                         .window = static_cast<int>(args.window),
                         .block = static_cast<int>(args.block),
                         .ring_rows = static_cast<int>(args.ring.extent(1)),
                         .window_row_bytes = static_cast<int>(args.ring.extent(2))};
  if (args.window_starts.present()) of.window_starts = args.window_starts.data;
  if (args.chosen.present()) {
    of.chosen = args.chosen.data;
    of.chosen_count = static_cast<int>(args.chosen.extent(1));
    of.latents = args.latents.rows.data;
    of.latent_row_bytes = static_cast<int>(args.latents.rows.extent(2));
    of.rows_per_page = static_cast<int>(args.latents.rows.extent(1));
    if (std::has_single_bit(static_cast<unsigned>(of.rows_per_page))) {
      of.page_shift = std::countr_zero(static_cast<unsigned>(of.rows_per_page));
    }
    of.table = args.latents.table.data;
    of.pages_per_slot = static_cast<int>(args.latents.table.extent(1));
  }
  return of;
}

void sparse_attention_plain(Queue& queue, const SparseAttentionArgs& args) {
  const AttentionParameters of = attention_parameters(args);
  const int most_keys = of.window + of.block + of.chosen_count;
  launch(queue, "sparse_attention", sparse_attention_kernel,
         {.blocks = dim3(static_cast<unsigned>(args.rows.tokens()), of.heads),
          .threads = kThreads,
          .shared_bytes =
              most_keys * (sizeof(const uint8_t*) + sizeof(float)) + of.head_dim * sizeof(float)},
         of, most_keys);
}

// The keys of one token are packed beside the product that makes its query, where nothing is
// started in between.
bool start_with_queries(Queue& queue, const SparseAttentionArgs& args) {
  const int64_t chosen = args.chosen.present() ? args.chosen.extent(1) : 0;
  if (args.rows.tokens() > 1 || !sparse_attention_fits_tiles(args) || args.block > 0 ||
      args.window > PackedKeys::kWindowKeys || chosen > PackedKeys::kLatents ||
      sparse_attention_blocks(1) != kAttentionMostBlocks) {
    return false;
  }
  const auto queries = queue.held().take<HeldQueries>([&](const HeldQueries& held) {
    const PrepareQueryArgs& turn = held.turn;
    return !held.compression && turn.q.data == args.q.data && turn.q.shape == args.q.shape &&
           turn.window_rows.data == args.window_rows.data &&
           turn.window_rows.shape == args.window_rows.shape &&
           turn.rows.positions.data == args.rows.positions.data &&
           !overlap({turn.q, turn.window_rows},
                    {args.rows.positions, args.rows.slots, args.rows.first_rows, args.ring,
                     args.window_starts, args.chosen, args.latents.rows, args.latents.table});
  });
  if (!queries) return false;
  Scratch scratch(queue);
  AttentionParameters of = attention_parameters(args);
  of.settled = queue.held().settled({args.ring, args.chosen, args.latents.rows});
  of.packed = scratch.allocate<uint8_t>(PackedKeys::kBytes);
  start_queries(queue, *queries, of);
  sparse_attention_of_packed(queue, of);
  return true;
}

void sparse_attention(Queue& queue, const SparseAttentionArgs& args) {
  check_shapes(args);
  if (start_with_queries(queue, args)) {
  } else if (sparse_attention_fits_tiles(args)) {
    sparse_attention_in_tiles(queue, args, sparse_attention_blocks(args.rows.tokens()));
  } else {
    sparse_attention_plain(queue, args);
  }
  if (args.rows.tokens() > 0) queue.held().note_attention();
}

}  // namespace cachalot::cuda
