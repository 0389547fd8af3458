// The coefficients of a collapse of few tokens, apart from its x: nobody needs them before the
// sublayer that x goes to has ended, so they are computed beside its first kernel.
#pragma once

#include "backend/cuda/hyper_collapse.h"

namespace cachalot::cuda {

struct Mixes {
  Collapse collapse;  // of the stream as it is when this starts
  // [tokens, slices] sums of squares of the stream, from whoever computes x; [slices] counts of
  // those that have read the stream, where that is expanded meanwhile, 0 between operations;
  // [tokens][blocks][mixes]. Sums as leave_sum() leaves them (awaited_sums.cuh).
  uint32_t *stream_squares, *readers, *sums;
};

inline constexpr int64_t kMostMixTokens = 8;
inline constexpr int kMixBlocks = 16;  // which all run at a time

Mixes mixes_of(Queue& queue, const HyperCollapseArgs& args);

// In a kernel of its own.
void start_mixes(Queue& queue, const Mixes& mixes);

}  // namespace cachalot::cuda
