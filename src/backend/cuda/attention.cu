// prepare_query and write_window.
#include <cuda_fp8.h>

#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rotary.h"
#include "backend/cuda/row_units.h"
#include "backend/cuda/window_write.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct PrepareParameters {
  const int32_t* positions;
  const float* frequencies;
  int pairs;
  __nv_bfloat16* q;  // may be nullptr
  int heads, head_dim;
  const __nv_bfloat16* kv;
  uint8_t* window_rows;
  int row_bytes;
};

// A warp makes 32 channels of the window row, a lane each.
__device__ void quantize_group(const PrepareParameters& of, int64_t token, int group, float value,
                               const float2* turns) {
  const int lane = threadIdx.x % 32, channel = group * 32 + lane;
  const int rotated = channel - (of.head_dim - 2 * of.pairs);
  const float other = __shfl_xor_sync(~0u, value, 1);
  if (rotated >= 0) {
    const float2 turn = turns[rotated / 2];
    const bool second = lane % 2 != 0;
    const float2 pair = second ? rotate_pair(other, value, turn.x, turn.y)
                               : rotate_pair(value, other, turn.x, turn.y);
    value = rounded_to_bf16(second ? pair.y : pair.x);
  }
  float largest = fabsf(value);
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  // The smallest power of two >= largest / 448 (number_formats.h): at least 2^-22, so that its
  // inverse is exact and multiplying by it is the division.
  const uint32_t bits = __float_as_uint(__fmul_rn(fmaxf(largest, 1e-4f), 0x1.24924ap-9f));
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
  const float inverse = __uint_as_float((254 - code) << 23);
  uint8_t* row = of.window_rows + token * of.row_bytes;
  row[channel] = __nv_cvt_float_to_fp8(value * inverse, __NV_SATFINITE, __NV_E4M3);
  if (lane == 0) row[of.head_dim + group] = static_cast<uint8_t>(code);
}

// A block per token. Of q only the rotated channels are touched.
__global__ void __launch_bounds__(kThreads) prepare_query_kernel(PrepareParameters of) {
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
  float values[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = warp + i * kWarps;
    values[i] = group < groups ? __bfloat162float(kv[group * 32 + lane]) : 0.0f;
  }
  auto* heads =
      of.q == nullptr
          ? nullptr
          : reinterpret_cast<__nv_bfloat162*>(of.q + token * of.heads * of.head_dim + of.head_dim) -
                of.pairs;
  const int stride = of.head_dim / 2;
  const int head_count = of.q == nullptr ? 0 : of.heads;
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
    if (group < groups) quantize_group(of, token, group, values[i], turns);
  }
  for (int group = warp + kGroups * kWarps; group < groups; group += kWarps) {
    quantize_group(of, token, group, __bfloat162float(kv[group * 32 + lane]), turns);
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

void prepare_query(Queue& queue, const PrepareQueryArgs& args) {
  check_shapes(args);
  const int64_t head_dim = args.kv.extent(1), pairs = args.frequencies.extent(0);
  const PrepareParameters of{
      .positions = args.rows.positions.data,
      .frequencies = args.frequencies.data,
      .pairs = static_cast<int>(pairs),
      .q = args.q.present() ? reinterpret_cast<__nv_bfloat16*>(args.q.data) : nullptr,
      .heads = args.q.present() ? static_cast<int>(args.q.extent(1)) : 0,
      .head_dim = static_cast<int>(head_dim),
      .kv = reinterpret_cast<const __nv_bfloat16*>(args.kv.data),
      .window_rows = args.window_rows.data,
      .row_bytes = static_cast<int>(args.window_rows.extent(1))};
  launch(queue, "prepare_query", prepare_query_kernel,
         {.blocks = static_cast<unsigned>(args.rows.tokens()),
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(pairs) * sizeof(float2)},
         of);
}

// What follows, a product of the attention's output, can write the few rows beside it.
void write_window(Queue& queue, const WriteWindowArgs& args) {
  check_shapes(args);
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
