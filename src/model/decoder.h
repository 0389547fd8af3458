// The whole text model: one forward pass for every backend, prompt and reply alike (spec: model,
// 3).
#pragma once

#include "model/context.h"

namespace cachalot {

// Runs the step on the queue and returns its outputs, which live in the queue's arena until the
// caller releases it (an ArenaScope around the call).
template <class Q>
StepOutputs forward(Q& queue, const Context& context);

// Inputs of a step of that size, without data.
StepInputs planned_inputs(const StepShape& shape, const Caches& caches);

// Arena bytes a step of this shape needs: a planning run on the meta queue.
size_t plan_workspace(const ModelConfig& config, const ModelWeights& weights,
                      const ModelConstants& constants, const Caches& caches, int64_t tokens,
                      int64_t outputs);

}  // namespace cachalot
