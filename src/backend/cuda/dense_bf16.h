// Products with BF16 weights.
#pragma once

#include "backend/cuda/queue.h"
#include "ops/linear.h"

namespace cachalot::cuda {

// linear() for a BF16 weight.
void linear_bf16(Queue& queue, const LinearArgs& args);

}  // namespace cachalot::cuda
