#include "backend/cuda/hyper_mixes.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/quantize_fp8.cuh"
#include "backend/cuda/row_norm.cuh"
#include "backend/cuda/row_norm.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 4;      // a row each
constexpr int kTogether = 16;  // columns of a lane's load
// Groups of kTogether columns of a lane that stay in registers for the second pass.
constexpr int kKept = 3;

struct Norm {
  __nv_bfloat16* y;
  const __nv_bfloat16* norm;
  int rows, width;
  float eps;
};

struct Sixteen {
  uint4 values[2];

  __device__ float value(int i) const {
    const uint4& eight = values[i / 8];
    const uint32_t two = i % 8 < 2 ? eight.x : i % 8 < 4 ? eight.y : i % 8 < 6 ? eight.z : eight.w;
    return __uint_as_float(i % 2 == 0 ? two << 16 : two & 0xFFFF0000u);
  }
};

// Columns from `first` on; zeros behind the row's end.
template <bool kPacked>
__device__ Sixteen load(const __nv_bfloat16* row, int first, int width) {
  Sixteen out{};
  if constexpr (kPacked) {
    out.values[0] = __ldcg(reinterpret_cast<const uint4*>(row + first));
    out.values[1] = __ldcg(reinterpret_cast<const uint4*>(row + first) + 1);
  } else {
    uint32_t words[8] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= width) break;
      words[i / 2] |= uint32_t{__bfloat16_as_ushort(__ldcg(row + first + i))} << i % 2 * 16;
    }
    out.values[0] = {words[0], words[1], words[2], words[3]};
    out.values[1] = {words[4], words[5], words[6], words[7]};
  }
  return out;
}

// What is stored, where it is packed.
template <bool kPacked>
__device__ Sixteen store(__nv_bfloat16* row, int first, int width, const Sixteen& y,
                         const Sixteen& weights, float divisor) {
  __nv_bfloat162 out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    out[i] =
        __floats2bfloat162_rn(normalized(y.value(2 * i), weights.value(2 * i), divisor),
                              normalized(y.value(2 * i + 1), weights.value(2 * i + 1), divisor));
  }
  if constexpr (kPacked) {
    auto* const to = reinterpret_cast<uint4*>(row + first);
    const Sixteen packed{*reinterpret_cast<const uint4*>(&out[0]),
                         *reinterpret_cast<const uint4*>(&out[4])};
    to[0] = packed.values[0];
    to[1] = packed.values[1];
    return packed;
  } else {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i < width) row[first + i] = i % 2 == 0 ? out[i / 2].x : out[i / 2].y;
    }
    return {};
  }
}

// Sixteen columns as products with FP8 weights take them: two lanes have a group of 32, eight the
// 128 columns of a word of scales. All lanes of a warp call, those `inside` have columns.
__device__ void store_codes(const QuantizedRows& to, int row, int first, bool inside,
                            const Sixteen& y) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kTogether; ++i) largest = fmaxf(largest, fabsf(y.value(i)));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  const uint32_t scale = fp8_scale_of(largest);
  const float inverse = inverse_scale(scale);
  uint32_t codes[4], scales = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    codes[i] = to_e4m3_quad(y.value(4 * i) * inverse, y.value(4 * i + 1) * inverse,
                            y.value(4 * i + 2) * inverse, y.value(4 * i + 3) * inverse);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int group = 0; group < 4; ++group)
    scales |= __shfl_sync(~0u, scale, lane / 8 * 8 + 2 * group) << (8 * group);
  if (!inside) return;
  *reinterpret_cast<uint4*>(to.codes + int64_t{row} * to.columns + first) = {codes[0], codes[1],
                                                                             codes[2], codes[3]};
  if (lane % 8 == 0) to.scales[first / 128 * to.scale_stride + row] = scales;
}

__device__ inline float sum_of(const Sixteen& y) {
  float sums[8];
#pragma unroll
  for (int g = 0; g < 8; ++g) sums[g] = square_pair(y.value(g), y.value(g + 8));
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) {
#pragma unroll
    for (int g = 0; g < 8; g += 2 * distance) sums[g] = __fadd_rn(sums[g], sums[g + distance]);
  }
  return sums[0];
}

template <bool kPacked>
__device__ void normalize_some(const Norm& p, int block, const QuantizedRows& quantized = {}) {
  const int row = block * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(threadIdx.x) % 32 * kTogether;
  constexpr int kStride = 32 * kTogether;
  Sixteen weights[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (first + k * kStride < p.width)
      weights[k] = load<kPacked>(p.norm, first + k * kStride, p.width);
  }
  wait_for_inputs();
  if (row >= p.rows) return;
  __nv_bfloat16* const y = p.y + int64_t{row} * p.width;
  Sixteen kept[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (first + k * kStride < p.width) kept[k] = load<kPacked>(y, first + k * kStride, p.width);
  }
  float sum = 0;
  const auto add = [&](const Sixteen& sixteen) {
    float tile = sum_of(sixteen);
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
      tile = __fadd_rn(tile, __shfl_xor_sync(~0u, tile, distance));
    }
    sum = __fadd_rn(sum, tile);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (k * kStride < p.width) add(kept[k]);
  }
  for (int at = kKept * kStride; at < p.width; at += kStride) {
    add(first + at < p.width ? load<kPacked>(y, first + at, p.width) : Sixteen{});
  }
  const float divisor = norm_divisor<8, 16>(sum, p.width, p.eps);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int at = first + k * kStride;
    Sixteen stored{};
    if (at < p.width) stored = store<kPacked>(y, at, p.width, kept[k], weights[k], divisor);
    if (kPacked && quantized.codes != nullptr && k * kStride < p.width)
      store_codes(quantized, row, at, at < p.width, stored);
  }
  for (int at = first + kKept * kStride; at < p.width; at += kStride) {
    store<kPacked>(y, at, p.width, load<kPacked>(y, at, p.width),
                   load<kPacked>(p.norm, at, p.width), divisor);
  }
}

template <bool kPacked>
__global__ void __launch_bounds__(kWarps * 32) normalize(const Norm p) {
  let_next_start();
  normalize_some<kPacked>(p, static_cast<int>(blockIdx.x));
}

// Rows of the first, of the second, then a warp for each token of `mixes`.
struct TwoNorms {
  Norm first, second;
  int first_blocks, blocks;
  QuantizedRows quantized;  // rows of the first, if it has codes
};

template <bool kPacked>
__global__ void __launch_bounds__(kWarps * 32) normalize_two(const TwoNorms of, const Mixes mixes) {
  let_next_start();
  const auto block = static_cast<int>(blockIdx.x);
  if (block < of.first_blocks) return normalize_some<kPacked>(of.first, block, of.quantized);
  if (block < of.blocks) return normalize_some<kPacked>(of.second, block - of.first_blocks);
  __shared__ float matrices[kWarps][16];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = int64_t{block - of.blocks} * kWarps + warp;
  wait_for_inputs();
  if (token >= mixes.collapse.tokens) return;
  finish_mixes(mixes, token, mixes.collapse.base, mixes.collapse.scale, matrices[warp]);
}

bool packed(const NormedRows& of) {
  return of.width % kTogether == 0 && reinterpret_cast<uintptr_t>(of.y) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(of.norm) % 16 == 0;
}

Norm norm_of(const NormedRows& of) {
  return {reinterpret_cast<__nv_bfloat16*>(of.y), reinterpret_cast<const __nv_bfloat16*>(of.norm),
          static_cast<int>(of.rows), static_cast<int>(of.width), of.eps};
}

unsigned blocks_of(const NormedRows& of) {
  return static_cast<unsigned>((of.rows + kWarps - 1) / kWarps);
}

}  // namespace

void normalize_rows(Queue& queue, const NormedRows& of) {
  launch(queue, "linear", packed(of) ? normalize<true> : normalize<false>,
         {.blocks = blocks_of(of), .threads = kWarps * 32}, norm_of(of));
}

bool quantizes_normed(const NormedRows& of) {
  return packed(of) && of.width % 128 == 0 && of.width <= kKept * 32 * kTogether;
}

void normalize_rows(Queue& queue, const NormedRows& first, const NormedRows& second,
                    const QuantizedRows& quantized, const Mixes* mixes) {
  CACHALOT_CHECK(quantized.codes == nullptr || (quantizes_normed(first) && packed(second)),
                 "{} columns to be quantized", first.width);
  const unsigned of_first = blocks_of(first), of_both = of_first + blocks_of(second);
  const unsigned of_mixes =
      mixes == nullptr ? 0 : static_cast<unsigned>((mixes->collapse.tokens + kWarps - 1) / kWarps);
  launch(queue, "linear",
         packed(first) && packed(second) ? normalize_two<true> : normalize_two<false>,
         {.blocks = of_both + of_mixes, .threads = kWarps * 32},
         TwoNorms{norm_of(first), norm_of(second), static_cast<int>(of_first),
                  static_cast<int>(of_both), quantized},
         mixes == nullptr ? Mixes{} : *mixes);
}

}  // namespace cachalot::cuda
