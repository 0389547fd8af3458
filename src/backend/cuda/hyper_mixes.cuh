// What the blocks of hyper_mixes.h do, in whatever kernel. For .cu files.
#pragma once

#include <type_traits>

#include "backend/cuda/awaited_sums.cuh"
#include "backend/cuda/hyper_coefficients.h"
#include "backend/cuda/hyper_collapse_slice.cuh"
#include "backend/cuda/hyper_mixes.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx/async_copy.h"

namespace cachalot::cuda {

// Two blocks share a slice, eight parts of its sums each. What a block needs of fn comes before the
// stream is there: most of it by the copy engine, the last chunks of a lane's chain into registers,
// so that the block is small enough to run beside others.
struct MixShared {
  static constexpr int kWarps = collapse_order::kParts / 2;
  static constexpr int kChunks = 16, kLast = collapse_order::kChunks - kChunks;
  static constexpr int kKept = kChunks * collapse_order::kChunk;
  static constexpr int kTokens = 2;  // at a time
  static constexpr int kCopies = collapse_order::kCopies / 2;

  // A row per mix; lanes read 16 bytes of 8 rows at a time, which the padding puts into different
  // banks.
  float fn[kCopies][collapse_order::kMixes][kKept + 4];
  uint4 stream[kTokens][kCopies][collapse_order::kSlice / kUnit];
  float of_warps[kWarps][kTokens][collapse_order::kMixes];
  float base[collapse_order::kMixes], scale[3];
  alignas(16) float matrix[16];
  Barrier fn_there;
};

// The sum of a token's mix over all blocks, once they are there; leaves zeros behind.
__device__ inline float take_mix(uint32_t* sums) {
  using namespace collapse_order;
  float parts[kMixBlocks];
  take_sums(parts, sums, kMixes);
  float of_slice[kSlices];
#pragma unroll
  for (int s = 0; s < kSlices; ++s) of_slice[s] = parts[s] + parts[kSlices + s];
  return sum_of_8(of_slice);
}

// By a warp: a token's coefficients, once all sums are there. `matrix`: 16 floats of its own.
__device__ inline void finish_mixes(const Mixes& of, int64_t token, const float* base,
                                    const float* scale, float* matrix) {
  using namespace collapse_order;
  const int lane = threadIdx.x % 32;
  float product = 0;
  if (lane < kMixes) {
    product = take_mix(of.sums + token * kMixBlocks * kMixes + lane);
  } else if (lane == kMixes) {
    float squares[kSlices];
    take_sums(squares, of.stream_squares + token * kSlices, 1);
    product = sum_of_8(squares) / (kCopies * kDim);
  }
  begin_coefficients(of.collapse, token, product, base, scale, matrix);
  __syncwarp();
  if (lane == 0) finish_coefficients(of.collapse, token, matrix);
}

// This block has read its part of a slice of the stream.
__device__ inline void count_reader(const Mixes& of, int slice) {
  if (threadIdx.x == 0) atomicAdd(of.readers + slice, 1);
}
// Until as many blocks have read it. By all threads of a block.
__device__ inline void wait_for_readers(const Mixes& of, int slice, uint32_t count) {
  if (threadIdx.x == 0) {
    volatile uint32_t* const readers = of.readers + slice;
    while (*readers != count) continue;
    *readers = 0;
  }
  __syncthreads();
}

// By all threads of block `block` of kMixBlocks, at least 256; has not waited for its inputs.
// kExpands: of the one token's stream as `expansion` leaves it, which is not there yet. `late`: the
// next kernel starts only when all blocks have waited.
template <int kThreads, bool kExpands = false>
__device__ void compute_mixes(const Mixes& of, int block, MixShared& shared,
                              const Expansion& expansion = {}, bool late = false) {
  using namespace collapse_order;
  constexpr int kWarps = MixShared::kWarps;
  constexpr int kPieces = MixShared::kCopies * kMixes;
  constexpr uint32_t kPieceBytes = MixShared::kKept * sizeof(float);
  static_assert(kThreads >= 32 * kWarps && kPieces <= kThreads);
  const Collapse& args = of.collapse;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int slice = block % kSlices, half = block / kSlices;
  const auto tokens = static_cast<int>(args.tokens);
  const auto fn_row = [&](int copy, int mix) {
    return args.fn + (mix * kCopies + half * MixShared::kCopies + copy) * kDim + slice * kSlice;
  };

  if (thread == 0) {
    barrier_init(&shared.fn_there, 1);
    fence_barrier_init();
    barrier_expect(&shared.fn_there, kPieces * kPieceBytes);
  }
  __syncthreads();
  if (thread < kPieces) {
    const int copy = thread / kMixes, mix = thread % kMixes;
    copy_bulk(shared.fn[copy][mix], fn_row(copy, mix), kPieceBytes, &shared.fn_there);
  }
  // A lane's part of the slice: of a copy, eight dimensions of every chunk.
  const int copy = warp / 4 % MixShared::kCopies, eight = warp % 4, mix = min(lane, kMixes - 1);
  float4 last[MixShared::kLast][2];
  {
    const auto* from =
        reinterpret_cast<const float4*>(fn_row(copy, mix) + MixShared::kKept) + eight * (kUnit / 4);
#pragma unroll
    for (int i = 0; i < MixShared::kLast; ++i) {
      last[i][0] = __ldg(from + i * (kChunk / 4));
      last[i][1] = __ldg(from + i * (kChunk / 4) + 1);
    }
  }
  if (warp == 0 && lane < kMixes) shared.base[lane] = args.base[lane];
  if (warp == 1 && lane < 3) shared.scale[lane] = args.scale[lane];
  if (!late) let_next_start();
  wait_for_inputs();
  if (late) let_next_start();

  const auto multiply = [&](auto at_once) {
    constexpr int kTokens = decltype(at_once)::value;
    for (int first = 0; first < tokens; first += kTokens) {
      if constexpr (kExpands) {
        if (thread < kSliceThreads) {
          StreamFour words;
          load_stream(words, args.stream, 0, slice * kSliceThreads + thread);
          expand(words, expansion, 0, slice * kSliceThreads + thread);
#pragma unroll
          for (int c = 0; c < MixShared::kCopies; ++c)
            reinterpret_cast<uint2*>(shared.stream[0][c])[thread] =
                half == 0 ? words[c] : words[MixShared::kCopies + c];
        }
      } else {
        constexpr int kUnits = kSlice / kUnit;
        for (int i = thread; i < kTokens * MixShared::kCopies * kUnits; i += kThreads) {
          const int unit = i % kUnits, c = i / kUnits % MixShared::kCopies;
          const int t = i / kUnits / MixShared::kCopies;
          const bool inside = first + t < tokens;
          const int64_t row =
              int64_t{inside ? first + t : 0} * kCopies + half * MixShared::kCopies + c;
          copy_16(&shared.stream[t][c][unit],
                  args.stream + row * collapse_order::kDim + slice * kSlice + unit * kUnit, inside);
        }
        commit_copies();
        wait_copies<0>();
      }
      __syncthreads();
      if (kExpands) count_reader(of, slice);
      if (warp < kWarps) {
        if (first == 0) barrier_wait(&shared.fn_there, 0);
        float sum[kTokens] = {};
        const auto add = [&](int chunk, const float4& low, const float4& high) {
          const float factor[kUnit] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (int t = 0; t < kTokens; ++t) {
            const Unit value = widen(shared.stream[t][copy][chunk * 4 + eight]);
#pragma unroll
            for (int i = 0; i < kUnit; ++i) sum[t] = fmaf(value.value[i], factor[i], sum[t]);
          }
        };
        const auto* fn = reinterpret_cast<const float4*>(&shared.fn[copy][mix][eight * kUnit]);
#pragma unroll 4
        for (int chunk = 0; chunk < MixShared::kChunks; ++chunk) {
          add(chunk, fn[chunk * (kChunk / 4)], fn[chunk * (kChunk / 4) + 1]);
        }
#pragma unroll
        for (int i = 0; i < MixShared::kLast; ++i) {
          add(MixShared::kChunks + i, last[i][0], last[i][1]);
        }
        if (lane < kMixes) {
#pragma unroll
          for (int t = 0; t < kTokens; ++t) shared.of_warps[warp][t][lane] = sum[t];
        }
      }
      __syncthreads();
      if (thread < kTokens * kMixes && first + thread / kMixes < tokens) {
        const int t = thread / kMixes, i = thread % kMixes;
        leave_sum(of.sums + ((first + t) * kMixBlocks + block) * kMixes + i,
                  sum_of_8(&shared.of_warps[0][t][i], MixShared::kTokens * kMixes));
      }
    }
  };
  if (kExpands || tokens == 1) {
    multiply(std::integral_constant<int, 1>{});
  } else {
    multiply(std::integral_constant<int, MixShared::kTokens>{});
  }
  if (warp != 0 || block >= tokens) return;
  static_assert(kMostMixTokens <= kMixBlocks);
  finish_mixes(of, block, shared.base, shared.scale, shared.matrix);
}

}  // namespace cachalot::cuda
