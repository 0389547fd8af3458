#include "backend/cuda/block_formats.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/paged_address.h"
#include "tensor/block_quantizers.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256, kKeyThreads = 512;
constexpr int kMostRatio = 64;

struct Compression {
  DeviceRows rows;
  DevicePages<uint8_t> latents;
  int32_t ratio, head_dim, pairs, open_rows;
  const float *kv, *gate, *frequencies;
  float* open;
  const bf16* norm;
  float norm_eps;
  bf16* latent;
};

// kv and gate of one position of the sequence that row t belongs to, which the step computes from
// position `start` on, in rows from `first` on.
struct GroupRow {
  const float* kv;
  const float* gate;
};
__device__ GroupRow row_at(const Compression& of, int32_t t, int32_t first, int32_t start,
                           int32_t position) {
  if (position >= start) {
    const int64_t at = static_cast<int64_t>(first + position - start) * of.head_dim;
    return {of.kv + at, of.gate + at};
  }
  const int64_t kept =
      static_cast<int64_t>(of.rows.slots[t]) * of.open_rows + position % of.open_rows;
  const float* row = of.open + kept * 2 * of.head_dim;
  return {row, row + of.head_dim};
}

// One channel of a group: softmax over its gates, in position order. kRatio: 0 where it is not
// known.
template <int kRatio>
__device__ float pooled(const GroupRow* group, int32_t any_ratio, int32_t channel) {
  const int32_t ratio = kRatio > 0 ? kRatio : any_ratio;
  if (kRatio == 1) return group[0].kv[channel];
  float largest = group[0].gate[channel];
#pragma unroll
  for (int32_t i = 1; i < ratio; ++i) largest = fmaxf(largest, group[i].gate[channel]);
  float sum = 0;
#pragma unroll
  for (int32_t i = 0; i < ratio; ++i) sum += expf(group[i].gate[channel] - largest);
  float out = 0;
#pragma unroll
  for (int32_t i = 0; i < ratio; ++i) {
    out += __fdiv_rn(expf(group[i].gate[channel] - largest), sum) * group[i].kv[channel];
  }
  return out;
}

// Row t of the step stays until its group is complete.
__device__ void keep_row(const Compression& of, int32_t t) {
  const int64_t kept =
      static_cast<int64_t>(of.rows.slots[t]) * of.open_rows + of.rows.positions[t] % of.open_rows;
  float* to = of.open + kept * 2 * of.head_dim;
  for (int32_t i = threadIdx.x; i < of.head_dim; i += kThreads) {
    to[i] = of.kv[static_cast<int64_t>(t) * of.head_dim + i];
    to[of.head_dim + i] = of.gate[static_cast<int64_t>(t) * of.head_dim + i];
  }
}

// A block per row of the step; each thread has pairs of channels from pooling to packing. kKeeps:
// rows stay too.
template <int kRatio, bool kKeeps>
__global__ void __launch_bounds__(kThreads) compress_kernel(Compression of) {
  extern __shared__ float values[];  // [head_dim]
  __shared__ float partials[32];
  __shared__ GroupRow group[kMostRatio];
  let_next_start();
  // Rows of the step came before its first kernel: no kernel writes them.
  const int32_t t = static_cast<int32_t>(blockIdx.x), position = of.rows.positions[t];
  const bool ends = (position + 1) % of.ratio == 0;
  if (ends && static_cast<int32_t>(threadIdx.x) < of.ratio) {
    const int32_t first = of.rows.first_rows[t];
    group[threadIdx.x] = row_at(of, t, first, of.rows.positions[first],
                                position - of.ratio + 1 + static_cast<int32_t>(threadIdx.x));
  }
  __syncthreads();
  wait_for_inputs();
  if (!ends) {
    if (kKeeps) keep_row(of, t);
    return;
  }
  float squares = 0;
  for (int32_t pair = threadIdx.x; pair < of.head_dim / 2; pair += kThreads) {
    const float even = rounded_to_bf16(pooled<kRatio>(group, of.ratio, 2 * pair));
    const float odd = rounded_to_bf16(pooled<kRatio>(group, of.ratio, 2 * pair + 1));
    values[2 * pair] = even;
    values[2 * pair + 1] = odd;
    squares += even * even;
    squares += odd * odd;
  }
  const float mean = sum_of_block(squares, partials) / static_cast<float>(of.head_dim);
  const float root = sqrtf(mean + of.norm_eps);
  // In the place of a row that this group may have read.
  if (kKeeps) keep_row(of, t);

  const int32_t entry = position / of.ratio;
  const int32_t plain_pairs = of.head_dim / 2 - of.pairs;
  uint8_t* packed = of.latents.row(of.rows.slots[t], entry);
  bf16* latent = of.latent + static_cast<int64_t>(t) * of.head_dim;
  // Eight lanes hold one group of 16; whole warps take every turn, for the shuffles.
  for (int32_t pair = threadIdx.x; pair - static_cast<int32_t>(threadIdx.x) % 32 < of.head_dim / 2;
       pair += kThreads) {
    const bool inside = pair < of.head_dim / 2;
    float2 value{0, 0};
    if (inside) {
      const bf16 even = narrowed(widened(of.norm[2 * pair]) * __fdiv_rn(values[2 * pair], root));
      const bf16 odd =
          narrowed(widened(of.norm[2 * pair + 1]) * __fdiv_rn(values[2 * pair + 1], root));
      latent[2 * pair] = even;
      latent[2 * pair + 1] = odd;
      value = {widened(even), widened(odd)};
      if (pair >= plain_pairs) {
        value = rotated(value, rotation_at(static_cast<int64_t>(entry) * of.ratio,
                                           of.frequencies[pair - plain_pairs]));
      }
    }
    const uint32_t scale =
        latent_scale_code(largest_of_lanes<8>(fmaxf(fabsf(value.x), fabsf(value.y))));
    if (inside) {
      const float divisor = e4m3_scale_value(scale);
      packed[pair] = e2m1_pair(__fdiv_rn(value.x, divisor), __fdiv_rn(value.y, divisor));
      if (pair % 8 == 0) packed[of.head_dim / 2 + pair / 8] = static_cast<uint8_t>(scale);
    }
  }
}

// The last rows of every sequence, once the groups that earlier ones end are made. Earlier rows of
// the step would share their places.
__global__ void __launch_bounds__(kThreads) keep_open_kernel(Compression of) {
  let_next_start();
  wait_for_inputs();
  const int32_t t = static_cast<int32_t>(blockIdx.x), later = t + of.open_rows;
  if (later < of.rows.tokens && of.rows.first_rows[later] == of.rows.first_rows[t]) return;
  keep_row(of, t);
}

struct KeyMaking {
  DeviceRows rows;
  DevicePages<uint8_t> keys;
  int32_t ratio, head_dim, width, pairs;
  const bf16 *latent, *weight, *norm;
  const float* frequencies;
  float norm_eps;
};

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
          float sum = sums[o][r];
          sum = fmaf(__uint_as_float(eight[o].x << 16), low.x, sum);
          sum = fmaf(__uint_as_float(eight[o].x & 0xFFFF0000u), low.y, sum);
          sum = fmaf(__uint_as_float(eight[o].y << 16), low.z, sum);
          sum = fmaf(__uint_as_float(eight[o].y & 0xFFFF0000u), low.w, sum);
          sum = fmaf(__uint_as_float(eight[o].z << 16), high.x, sum);
          sum = fmaf(__uint_as_float(eight[o].z & 0xFFFF0000u), high.y, sum);
          sum = fmaf(__uint_as_float(eight[o].w << 16), high.z, sum);
          sums[o][r] = fmaf(__uint_as_float(eight[o].w & 0xFFFF0000u), high.w, sum);
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
    const int32_t t = first + r;
    if (!makes_entry(t)) continue;
    const float* key = keys + r * of.width;
    float squares = 0;
    for (int32_t i = lane; i < of.width; i += 32) squares += key[i] * key[i];
    for (int distance = 16; distance > 0; distance /= 2) {
      squares += __shfl_xor_sync(~0u, squares, distance);
    }
    const float root = sqrtf(squares / static_cast<float>(of.width) + of.norm_eps);
    const int32_t entry = of.rows.positions[t] / of.ratio;
    const int32_t plain_pairs = of.width / 2 - of.pairs;
    uint8_t* packed = of.keys.row(of.rows.slots[t], entry);
    // Sixteen lanes hold one group of 32.
    for (int32_t pair = lane; pair - lane < of.width / 2; pair += 32) {
      const bool inside = pair < of.width / 2;
      float2 value{0, 0};
      if (inside) {
        value = {
            rounded_to_bf16(widened(of.norm[2 * pair]) * __fdiv_rn(key[2 * pair], root)),
            rounded_to_bf16(widened(of.norm[2 * pair + 1]) * __fdiv_rn(key[2 * pair + 1], root))};
        if (pair >= plain_pairs) {
          value = rotated(value, rotation_at(static_cast<int64_t>(entry) * of.ratio,
                                             of.frequencies[pair - plain_pairs]));
        }
      }
      const uint32_t scale =
          index_scale_code(largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y))));
      if (inside) {
        const float factor = e8m0_inverse(scale);
        packed[pair] = e2m1_pair(value.x * factor, value.y * factor);
        if (pair % 16 == 0) packed[of.width / 2 + pair / 16] = static_cast<uint8_t>(scale);
      }
    }
  }
}

}  // namespace

void compress_kv(Queue& queue, const CompressKvArgs& args) {
  queue.held().note_written(args.latents.rows);
  const Compression of{
      .rows = DeviceRows(args.rows),
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
  const LaunchShape shape{.blocks = static_cast<unsigned>(args.rows.tokens()),
                          .threads = kThreads,
                          .shared_bytes = static_cast<size_t>(of.head_dim) * sizeof(float)};
  // Where no row may take the place of one that another row's group reads: all that are kept of so
  // few rows are younger than those of groups that the step completes.
  const bool keeps =
      args.ratio > 1 && (of.rows.tokens == 1 || of.rows.tokens <= of.open_rows - args.ratio + 1);
  const auto kernel = args.ratio == 1 ? compress_kernel<1, false>
                      : args.ratio != 2
                          ? (keeps ? compress_kernel<0, true> : compress_kernel<0, false>)
                      : keeps ? compress_kernel<2, true>
                              : compress_kernel<2, false>;
  launch(queue, "compress_kv", kernel, shape, of);
  if (args.ratio == 1 || keeps) return;
  launch(queue, "compress_kv", keep_open_kernel, {.blocks = shape.blocks, .threads = kThreads}, of);
}

void index_keys(Queue& queue, const IndexKeysArgs& args) {
  const KeyMaking of{.rows = DeviceRows(args.rows),
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
