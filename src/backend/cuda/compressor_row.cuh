// What a block does with a row of compress_kv, and with the index key that is made of it. For .cu
// files.
#pragma once

#include "backend/cuda/block_formats.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/paged_address.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/queue.h"
#include "tensor/block_quantizers.h"

namespace cachalot::cuda {

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
__device__ inline GroupRow row_at(const Compression& of, int32_t t, int32_t first, int32_t start,
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

// One channel of a group: softmax over its gates, in position order. kRatio: of groups that have
// any, 0 where it is not known.
template <int kRatio>
__device__ float pooled(const GroupRow* group, int32_t any_ratio, int32_t channel) {
  if (any_ratio == 1) return group[0].kv[channel];
  const int32_t ratio = kRatio > 0 ? kRatio : any_ratio;
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
template <int kThreads>
__device__ void keep_row(const Compression& of, int32_t t) {
  const int64_t kept =
      static_cast<int64_t>(of.rows.slots[t]) * of.open_rows + of.rows.positions[t] % of.open_rows;
  float* to = of.open + kept * 2 * of.head_dim;
  for (int32_t i = threadIdx.x; i < of.head_dim; i += kThreads) {
    to[i] = of.kv[static_cast<int64_t>(t) * of.head_dim + i];
    to[of.head_dim + i] = of.gate[static_cast<int64_t>(t) * of.head_dim + i];
  }
}

// What a block has in shared memory for a row of compress_kv.
struct CompressShared {
  float partials[32];
  GroupRow group[kMostRatio];
};

// By all threads of a block, which has not waited for its inputs. Each has pairs of channels from
// pooling to packing. `keeps`: rows stay too. `values`: [head_dim], becomes the normed latent, for
// whoever meets the threads. Whether the row ends a group, without which there is none.
template <int kRatio, int kThreads>
__device__ __forceinline__ bool compress_row(const Compression& of, int32_t t, bool keeps,
                                             float* values, CompressShared& shared) {
  // Rows of the step came before its first kernel: no kernel writes them.
  const int32_t position = of.rows.positions[t];
  const bool ends = (position + 1) % of.ratio == 0;
  const int32_t entry = position / of.ratio, own = threadIdx.x;
  const int32_t plain_pairs = of.head_dim / 2 - of.pairs;
  const auto norm_of = [&](int32_t pair) {
    return float2{widened(of.norm[2 * pair]), widened(of.norm[2 * pair + 1])};
  };
  const auto rotation_of = [&](int32_t pair) {
    if (pair < plain_pairs) return float2{};
    return rotation_at(static_cast<int64_t>(entry) * of.ratio, of.frequencies[pair - plain_pairs]);
  };
  // What no kernel writes, of the pair that most threads have alone.
  float2 own_norm{}, own_rotation{};
  uint8_t* packed = nullptr;
  if (ends) {
    packed = of.latents.row(of.rows.slots[t], entry);
    if (own < of.head_dim / 2) {
      own_norm = norm_of(own);
      own_rotation = rotation_of(own);
    }
  }
  if (ends && static_cast<int32_t>(threadIdx.x) < of.ratio) {
    const int32_t first = of.rows.first_rows[t];
    shared.group[threadIdx.x] = row_at(of, t, first, of.rows.positions[first],
                                       position - of.ratio + 1 + static_cast<int32_t>(threadIdx.x));
  }
  __syncthreads();
  wait_for_inputs();
  if (!ends) {
    if (keeps) keep_row<kThreads>(of, t);
    return false;
  }
  float squares = 0;
  for (int32_t pair = threadIdx.x; pair < of.head_dim / 2; pair += kThreads) {
    const float even = rounded_to_bf16(pooled<kRatio>(shared.group, of.ratio, 2 * pair));
    const float odd = rounded_to_bf16(pooled<kRatio>(shared.group, of.ratio, 2 * pair + 1));
    values[2 * pair] = even;
    values[2 * pair + 1] = odd;
    squares += even * even;
    squares += odd * odd;
  }
  const float mean = sum_of_block(squares, shared.partials) / static_cast<float>(of.head_dim);
  const float root = sqrtf(mean + of.norm_eps);
  // In the place of a row that this group may have read.
  if (keeps) keep_row<kThreads>(of, t);

  bf16* latent = of.latent + static_cast<int64_t>(t) * of.head_dim;
  // Eight lanes hold one group of 16; whole warps take every turn, for the shuffles.
  for (int32_t pair = threadIdx.x; pair - static_cast<int32_t>(threadIdx.x) % 32 < of.head_dim / 2;
       pair += kThreads) {
    const bool inside = pair < of.head_dim / 2;
    float2 value{0, 0};
    if (inside) {
      const float2 norm = pair == own ? own_norm : norm_of(pair);
      const bf16 even = narrowed(norm.x * __fdiv_rn(values[2 * pair], root));
      const bf16 odd = narrowed(norm.y * __fdiv_rn(values[2 * pair + 1], root));
      latent[2 * pair] = even;
      latent[2 * pair + 1] = odd;
      value = {widened(even), widened(odd)};
      values[2 * pair] = value.x;
      values[2 * pair + 1] = value.y;
      if (pair >= plain_pairs) {
        value = rotated(value, pair == own ? own_rotation : rotation_of(pair));
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
  return true;
}

struct KeyMaking {
  DeviceRows rows;
  DevicePages<uint8_t> keys;
  int32_t ratio, head_dim, width, pairs;
  const bf16 *latent, *weight, *norm;
  const float* frequencies;
  float norm_eps;
};

// sum + eight weights times eight values, in order.
__device__ inline float add_eight(float sum, const uint4& eight, const float4& low,
                                  const float4& high) {
  sum = fmaf(__uint_as_float(eight.x << 16), low.x, sum);
  sum = fmaf(__uint_as_float(eight.x & 0xFFFF0000u), low.y, sum);
  sum = fmaf(__uint_as_float(eight.y << 16), low.z, sum);
  sum = fmaf(__uint_as_float(eight.y & 0xFFFF0000u), low.w, sum);
  sum = fmaf(__uint_as_float(eight.z << 16), high.x, sum);
  sum = fmaf(__uint_as_float(eight.z & 0xFFFF0000u), high.y, sum);
  sum = fmaf(__uint_as_float(eight.w << 16), high.z, sum);
  return fmaf(__uint_as_float(eight.w & 0xFFFF0000u), high.w, sum);
}

// What a lane needs to finish the key of a row, and no kernel writes: of its first two pairs.
struct KeyEnd {
  static constexpr int kPairs = 2;

  int64_t position;
  uint8_t* packed;
  float2 norms[kPairs], rotations[kPairs];

  KeyEnd() = default;
  __device__ KeyEnd(const KeyMaking& of, int32_t t) {
    const int32_t entry = of.rows.positions[t] / of.ratio;
    position = static_cast<int64_t>(entry) * of.ratio;
    packed = of.keys.row(of.rows.slots[t], entry);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int32_t pair = static_cast<int32_t>(threadIdx.x) % 32 + 32 * i;
      if (pair >= of.width / 2) break;
      norms[i] = norm(of, pair);
      rotations[i] = rotation(of, pair);
    }
  }
  __device__ float2 norm(const KeyMaking& of, int32_t pair) const {
    return {widened(of.norm[2 * pair]), widened(of.norm[2 * pair + 1])};
  }
  __device__ float2 rotation(const KeyMaking& of, int32_t pair) const {
    const int32_t turned = pair - (of.width / 2 - of.pairs);
    return turned < 0 ? float2{} : rotation_at(position, of.frequencies[turned]);
  }
};

// A warp makes the key of a row of its product with the latent, rounded to BF16.
__device__ inline void finish_key(const KeyMaking& of, const KeyEnd& end, const float* key) {
  const int32_t lane = threadIdx.x % 32, pairs = of.width / 2;
  float squares = 0;
  for (int32_t i = lane; i < of.width; i += 32) squares += key[i] * key[i];
  for (int distance = 16; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(~0u, squares, distance);
  }
  const float root = sqrtf(squares / static_cast<float>(of.width) + of.norm_eps);
  // Sixteen lanes hold one group of 32; whole warps come, for the shuffles.
  const auto finish = [&](int32_t pair, const float2& norm, const float2& rotation) {
    const bool inside = pair < pairs;
    float2 value{0, 0};
    if (inside) {
      value = {rounded_to_bf16(norm.x * __fdiv_rn(key[2 * pair], root)),
               rounded_to_bf16(norm.y * __fdiv_rn(key[2 * pair + 1], root))};
      if (pair >= pairs - of.pairs) value = rotated(value, rotation);
    }
    const uint32_t scale =
        index_scale_code(largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y))));
    if (inside) {
      const float factor = e8m0_inverse(scale);
      end.packed[pair] = e2m1_pair(value.x * factor, value.y * factor);
      if (pair % 16 == 0) end.packed[pairs + pair / 16] = static_cast<uint8_t>(scale);
    }
  };
#pragma unroll
  for (int i = 0; i < KeyEnd::kPairs; ++i) {
    if (32 * i < pairs) finish(lane + 32 * i, end.norms[i], end.rotations[i]);
  }
  for (int32_t first = 32 * KeyEnd::kPairs; first < pairs; first += 32) {
    const int32_t pair = first + lane;
    const bool inside = pair < pairs;
    finish(pair, inside ? end.norm(of, pair) : float2{},
           inside ? end.rotation(of, pair) : float2{});
  }
}

// Both of a row, of the released shape, one behind the other: most of the key's weight comes by the
// copy engine, the rest into registers, before the inputs are there.
struct KeptCompression {
  static constexpr int kHeadDim = 512, kWidth = 128;

  Compression entries;
  KeyMaking keys;
  bool keeps;
};
struct KeptCompressionShared {
  static constexpr int kWarps = 8, kOutputs = 4;   // of a warp at a time
  static constexpr int kTurn = kWarps * kOutputs;  // rows; the first ones come into registers
  static constexpr int kCopied = KeptCompression::kWidth - kTurn;

  alignas(128) bf16 weight[kCopied][KeptCompression::kHeadDim];
  alignas(16) float values[KeptCompression::kHeadDim];
  float key[KeptCompression::kWidth];
  CompressShared compress;
  Barrier copied;
};

// By all threads of a block.
template <int kThreads>
__device__ void compress_with_key(const KeptCompression& of, int32_t t,
                                  KeptCompressionShared& shared) {
  using S = KeptCompressionShared;
  constexpr int kHeadDim = KeptCompression::kHeadDim, kOutputs = S::kOutputs;
  static_assert(kThreads >= 32 * S::kWarps);
  const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool ends = (of.entries.rows.positions[t] + 1) % of.entries.ratio == 0;
  uint4 held[2][kOutputs];  // of the lane's channels, 256 apart
  if (ends) {
    if (threadIdx.x == 0) {
      barrier_init(&shared.copied, 1);
      fence_barrier_init();
      barrier_expect(&shared.copied, sizeof(shared.weight));
      copy_bulk(shared.weight, of.keys.weight + S::kTurn * kHeadDim, sizeof(shared.weight),
                &shared.copied);
    }
    if (warp < S::kWarps) {
#pragma unroll
      for (int i = 0; i < 2 * kOutputs; ++i) {
        held[i % 2][i / 2] = *reinterpret_cast<const uint4*>(
            of.keys.weight + (warp * kOutputs + i / 2) * kHeadDim + i % 2 * 256 + 8 * lane);
      }
    }
  }
  const bool finishes = ends && warp == 0;
  KeyEnd end;
  if (finishes) end = KeyEnd(of.keys, t);
  compress_row<2, kThreads>(of.entries, t, of.keeps, shared.values, shared.compress);
  if (!ends) return;
  __syncthreads();
  if (warp < S::kWarps) {
    float4 low[2], high[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      low[c] = *reinterpret_cast<const float4*>(shared.values + c * 256 + 8 * lane);
      high[c] = *reinterpret_cast<const float4*>(shared.values + c * 256 + 8 * lane + 4);
    }
    const auto add = [&](int output, const auto& weight_of) {
      float sums[kOutputs] = {};
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int c = 0; c < 2; ++c) sums[o] = add_eight(sums[o], weight_of(o, c), low[c], high[c]);
      }
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
#pragma unroll
        for (float& sum : sums) sum += __shfl_xor_sync(~0u, sum, distance);
      }
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
        if (lane == 0) shared.key[output + o] = rounded_to_bf16(sums[o]);
      }
    };
    add(warp * kOutputs, [&](int o, int c) { return held[c][o]; });
    barrier_wait(&shared.copied, 0);
#pragma unroll 1
    for (int row = warp * kOutputs; row < S::kCopied; row += S::kTurn) {
      add(S::kTurn + row, [&](int o, int c) {
        return *reinterpret_cast<const uint4*>(&shared.weight[row + o][c * 256 + 8 * lane]);
      });
    }
  }
  __syncthreads();
  if (finishes) finish_key(of.keys, end, shared.key);
}

}  // namespace cachalot::cuda
