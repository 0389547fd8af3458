#include "backend/cuda/compressor_beside.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256, kKeyThreads = 512;
// A block per row of the step.
template <int kRatio, bool kKeeps>
__global__ void __launch_bounds__(kThreads) compress_kernel(Compression of) {
  extern __shared__ float values[];  // [head_dim]
  __shared__ CompressShared shared;
  let_next_start();
  compress_row<kRatio, kThreads>(of, static_cast<int32_t>(blockIdx.x), kKeeps, values, shared);
}

// The last rows of every sequence, once the groups that earlier ones end are made. Earlier rows of
// the step would share their places.
__global__ void __launch_bounds__(kThreads) keep_open_kernel(Compression of) {
  let_next_start();
  wait_for_inputs();
  const int32_t t = static_cast<int32_t>(blockIdx.x), later = t + of.open_rows;
  if (later < of.rows.tokens && of.rows.first_rows[later] == of.rows.first_rows[t]) return;
  keep_row<kThreads>(of, t);
}

constexpr int kOutputs = 4;                                // of a warp at a time
constexpr int kTurnOutputs = kKeyThreads / 32 * kOutputs;  // of a block
constexpr int kTurnChannels = 32 * 8;                      // of a warp
constexpr int kHeldOutputs = 2, kHeldChannels = 2;         // turns of the released shape

// kRows: rows of latents a block multiplies with each weight it reads; every row's sums are the
// same for any number of them. kHolds: the weights, of the released shape, lie in registers before
// the latents are there.
template <int kRows, bool kHolds>
__global__ void __launch_bounds__(kKeyThreads) index_keys_kernel(KeyMaking of) {
  extern __shared__ __align__(16) float shared[];
  float* latents = shared;                     // [kRows, head_dim]
  float* keys = shared + kRows * of.head_dim;  // [kRows, width]
  let_next_start();
  const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto load = [&](int32_t out, int32_t channel) {
    return *reinterpret_cast<const uint4*>(of.weight + int64_t{out} * of.head_dim + channel);
  };
  uint4 held[kHeldOutputs][kHeldChannels][kOutputs];
  if constexpr (kHolds) {
#pragma unroll
    for (int i = 0; i < kHeldOutputs * kHeldChannels * kOutputs; ++i) {
      const int o = i % kOutputs, c = i / kOutputs % kHeldChannels,
                turn = i / kOutputs / kHeldChannels;
      held[turn][c][o] =
          load(turn * kTurnOutputs + warp * kOutputs + o, c * kTurnChannels + 8 * lane);
    }
  }
  wait_for_inputs();
  const int32_t first = static_cast<int32_t>(blockIdx.x) * kRows;
  const auto makes_entry = [&](int32_t t) {
    return t < of.rows.tokens && (of.rows.positions[t] + 1) % of.ratio == 0;
  };
  bool any = false;
  for (int32_t r = 0; r < kRows; ++r) any |= makes_entry(first + r);
  if (!any) return;
  for (int32_t i = threadIdx.x; i < kRows * of.head_dim; i += kKeyThreads) {
    const int64_t t = first + i / of.head_dim;
    latents[i] = t < of.rows.tokens ? widened(of.latent[t * of.head_dim + i % of.head_dim]) : 0.0f;
  }
  __syncthreads();
  const int output_turns = kHolds ? kHeldOutputs : (of.width + kTurnOutputs - 1) / kTurnOutputs;
  const int channel_turns =
      kHolds ? kHeldChannels : (of.head_dim + kTurnChannels - 1) / kTurnChannels;
#pragma unroll(kHolds ? kHeldOutputs : 1)
  for (int turn = 0; turn < output_turns; ++turn) {
    const int32_t out = turn * kTurnOutputs + warp * kOutputs;
    if (out >= of.width) break;
    float sums[kOutputs][kRows] = {};
#pragma unroll 2
    for (int c = 0; c < channel_turns; ++c) {
      const int32_t i = c * kTurnChannels + 8 * lane;
      if (i >= of.head_dim) break;
      uint4 eight[kOutputs];
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
        if constexpr (kHolds) {
          eight[o] = held[turn][c][o];
        } else {
          eight[o] = load(out + o, i);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 low = *reinterpret_cast<const float4*>(latents + r * of.head_dim + i);
        const float4 high = *reinterpret_cast<const float4*>(latents + r * of.head_dim + i + 4);
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) {
          sums[o][r] = add_eight(sums[o][r], eight[o], low, high);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        for (int distance = 16; distance > 0; distance /= 2) {
          sums[o][r] += __shfl_xor_sync(~0u, sums[o][r], distance);
        }
        if (lane == 0) keys[r * of.width + out + o] = rounded_to_bf16(sums[o][r]);
      }
    }
  }
  __syncthreads();
  // A warp per row from here.
  for (int32_t r = warp; r < kRows; r += kKeyThreads / 32) {
    if (makes_entry(first + r)) finish_key(of, KeyEnd(of, first + r), keys + r * of.width);
  }
}

}  // namespace

namespace {

Compression compression_of(const CompressKvArgs& args) {
  return {.rows = DeviceRows(args.rows),
          .latents = DevicePages<uint8_t>(args.latents),
          .ratio = static_cast<int32_t>(args.ratio),
          .head_dim = static_cast<int32_t>(args.kv.extent(1)),
          .pairs = static_cast<int32_t>(args.frequencies.extent(0)),
          .open_rows = args.ratio == 1 ? 0 : static_cast<int32_t>(args.open_rows.extent(1)),
          .kv = args.kv.data,
          .gate = args.gate.data,
          .frequencies = args.frequencies.data,
          .open = args.open_rows.data,
          .norm = args.norm.data,
          .norm_eps = args.norm_eps,
          .latent = args.latent.data};
}

// Where no row may take the place of one that another row's group reads: all that are kept of so
// few rows are younger than those of groups that the step completes.
bool keeps_at_once(const Compression& of) {
  return of.ratio > 1 && (of.rows.tokens == 1 || of.rows.tokens <= of.open_rows - of.ratio + 1);
}

KeyMaking making_of(const IndexKeysArgs& args) {
  return {.rows = DeviceRows(args.rows),
          .keys = DevicePages<uint8_t>(args.keys),
          .ratio = static_cast<int32_t>(args.ratio),
          .head_dim = static_cast<int32_t>(args.weight.extent(1)),
          .width = static_cast<int32_t>(args.weight.extent(0)),
          .pairs = static_cast<int32_t>(args.frequencies.extent(0)),
          .latent = args.latent.data,
          .weight = args.weight.data,
          .norm = args.norm.data,
          .frequencies = args.frequencies.data,
          .norm_eps = args.norm_eps};
}

}  // namespace

KeptCompression kept_compression(const HeldCompression& held) {
  const Compression entries = compression_of(held.entries);
  return {.entries = entries, .keys = making_of(held.keys), .keeps = keeps_at_once(entries)};
}

// What follows, queries, can be computed beside them.
void compress_kv(Queue& queue, const CompressKvArgs& args) {
  queue.held().note_written(args.latents.rows);
  const Compression of = compression_of(args);
  const bool may_join = of.rows.tokens > 0 && of.rows.tokens <= HeldCompression::kTokens &&
                        of.head_dim == KeptCompression::kHeadDim &&
                        (of.ratio == 1 || (of.ratio == 2 && keeps_at_once(of)));
  if (may_join) return queue.held().hold(queue, args);
  start_alone(queue, args);
}

void index_keys(Queue& queue, const IndexKeysArgs& args) {
  if (args.weight.extent(0) == KeptCompression::kWidth && queue.held().add_keys(args)) return;
  start_alone(queue, args);
}

void start_alone(Queue& queue, const CompressKvArgs& args) {
  const Compression of = compression_of(args);
  const LaunchShape shape{.blocks = static_cast<unsigned>(args.rows.tokens()),
                          .threads = kThreads,
                          .shared_bytes = static_cast<size_t>(of.head_dim) * sizeof(float)};
  const bool keeps = keeps_at_once(of);
  const auto kernel = args.ratio == 1 ? compress_kernel<1, false>
                      : args.ratio != 2
                          ? (keeps ? compress_kernel<0, true> : compress_kernel<0, false>)
                      : keeps ? compress_kernel<2, true>
                              : compress_kernel<2, false>;
  launch(queue, "compress_kv", kernel, shape, of);
  if (args.ratio == 1 || keeps) return;
  launch(queue, "compress_kv", keep_open_kernel, {.blocks = shape.blocks, .threads = kThreads}, of);
}

void start_alone(Queue& queue, const IndexKeysArgs& args) {
  const KeyMaking of = making_of(args);
  CACHALOT_CHECK(of.head_dim % 8 == 0, "head_dim {}", of.head_dim);
  const auto run = [&](auto kernel, int64_t rows) {
    launch(queue, "index_keys", kernel,
           {.blocks = static_cast<unsigned>((args.rows.tokens() + rows - 1) / rows),
            .threads = kKeyThreads,
            .shared_bytes = static_cast<size_t>(rows * (of.head_dim + of.width)) * sizeof(float)},
           of);
  };
  // Few rows: as many blocks as there are.
  if (args.rows.tokens() > 2 * queue.multiprocessors()) {
    run(index_keys_kernel<8, false>, 8);
  } else if (of.width == kHeldOutputs * kTurnOutputs &&
             of.head_dim == kHeldChannels * kTurnChannels) {
    run(index_keys_kernel<1, true>, 1);
  } else {
    run(index_keys_kernel<1, false>, 1);
  }
}

}  // namespace cachalot::cuda
