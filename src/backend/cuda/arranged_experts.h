// The experts' matrices, brought into the order in which the kernels of moe_experts read them
// (plan/experts_layout.h).
#pragma once

#include <span>

#include "backend/cuda/queue.h"
#include "tensor/matrix.h"

namespace cachalot::cuda {

// Arranges the matrices of one layer where they lie, those in the device's reach, if they are of a
// shape that is arranged; once, after they were copied there. A matrix at a time goes through
// scratch memory. Done when it returns.
void arrange_experts(Queue& queue, std::span<const ExpertMatrices> experts,
                     const SharedExpertMatrices& shared);

}  // namespace cachalot::cuda
