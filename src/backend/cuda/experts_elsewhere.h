// moe_experts where another processor computes some of the experts, at the same time.
#pragma once

#include <functional>
#include <vector>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

struct ExpertsElsewhere {
  // By id, of the args' experts: their matrices are not read, and may lie anywhere.
  const std::vector<bool>& experts;
  // [tokens, k, dim], in the device's reach: y_e (ops/experts.h) where ids name one of those
  // experts. Other rows are not read.
  const bf16* outputs;
  // Called when all that reads none of these has been started: what the queue is given next waits
  // for them.
  std::function<void()> await;
};

// Every y_e is added at its place in the order of ids, wherever it comes from.
void moe_experts(Queue& queue, const MoeExpertsArgs& args, const ExpertsElsewhere& elsewhere);

}  // namespace cachalot::cuda
