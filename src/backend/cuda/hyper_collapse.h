// hyper_collapse in two routes; the shape of the stream chooses.
#pragma once

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

inline constexpr int kMostCopies = 8;

// Any stream of at most kMostCopies copies: a block per token.
void collapse_any(Queue& queue, const HyperCollapseArgs& args);

}  // namespace cachalot::cuda
