// moe_experts of a single token, in one kernel.
#pragma once

#include "backend/cuda/moe_experts_parts.h"

namespace cachalot::cuda {

inline constexpr int kMostTokenWidth = 8192;

// Of arranged matrices.
bool moe_experts_token_takes(const Queue& queue, const MoeExpertsArgs& args);
void moe_experts_token(Queue& queue, const MoeExpertsArgs& args);

}  // namespace cachalot::cuda
