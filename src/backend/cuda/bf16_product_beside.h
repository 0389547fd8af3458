// Narrow products of the same few rows of x with BF16 weights, in one kernel.
#pragma once

#include "backend/cuda/held_operation.h"

namespace cachalot::cuda {

// Beside the kernel that was started last. That one lets the next start when all its blocks have
// waited for their inputs, writes neither x nor what these products read, and neither reads nor
// writes their results.
void start_beside(Queue& queue, const Bf16Products& products);

}  // namespace cachalot::cuda
