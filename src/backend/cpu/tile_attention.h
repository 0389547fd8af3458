// sparse_attention where the instruction set has kernels of its own for it (attention_kernels.h).
#pragma once

#include "ops/attention.h"

namespace cachalot::cpu {

class Queue;
struct AttentionKernels;

// Shapes are checked already, and there are tokens.
void tile_attention(Queue& queue, const AttentionKernels& kernels, const SparseAttentionArgs& args);

}  // namespace cachalot::cpu
