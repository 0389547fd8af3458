// The coefficients of a collapse of few tokens, apart from its x: nobody needs them before the
// sublayer that x goes to has ended, so they are computed beside its first kernel.
#pragma once

#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/quantize_fp8.h"

namespace cachalot::cuda {

struct Mixes {
  Collapse collapse;  // of the stream as it is when this starts
  // [tokens, slices] sums of squares of the stream, from whoever computes x; [slices] counts of
  // those that have read the stream, where that is expanded meanwhile, 0 between operations;
  // [tokens][blocks][mixes]. Sums as leave_sum() leaves them (awaited_sums.cuh).
  uint32_t *stream_squares, *readers, *sums;
  // x as products with FP8 weights take it, if it has codes: what waits for nothing but x may take
  // it so while the coefficients are held.
  QuantizedRows quantized;
};

inline constexpr int64_t kMostMixTokens = 8;  // that kernels of something else compute besides
inline constexpr int64_t kMostRowTokens = 256;
inline constexpr int64_t kMostQuantizedTokens = 64;  // of x that has codes, from there on
inline constexpr int kMixBlocks = 16;                // which all run at a time

Mixes mixes_of(Queue& queue, const HyperCollapseArgs& args);

// In a kernel of its own.
void start_mixes(Queue& queue, const Mixes& mixes);
// The same of more than kMostMixTokens.
void start_mixes_of_rows(Queue& queue, const Mixes& mixes);
// Of those, beside the kernels that were started last. The first of these lets the next start when
// all its blocks have waited for their inputs; they do not write the stream, and neither read nor
// write the coefficients.
void start_mixes_beside(Queue& queue, const Mixes& mixes);
// The same, but for finish_mixes() of each token, which is left to a kernel behind it.
void start_sums_beside(Queue& queue, const Mixes& mixes);

}  // namespace cachalot::cuda
