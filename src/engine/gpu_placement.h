// What of a model lies on a GPU.
#pragma once

#include "backend/cuda/queue.h"
#include "engine/engine.h"
#include "model/placed_weights.h"

namespace cachalot {

// What the vision tower takes, with the workspace of a large picture; 0 without one.
int64_t vision_memory(const ModelConfig& config);

// Device memory that kernels take besides the arena (cuda::Scratch), graphs and the driver, for
// steps of up to this many tokens.
int64_t kernel_memory(const ModelConfig& config, int64_t step_tokens);

// caches, workspace: bytes. Errors, each with the sizes that do not go together: the dense weights,
// caches and workspace do not fit; ExpertsOn::gpu and not all experts do.
Result<WeightPlacement> place_on_gpu(const ModelWeights& weights, const ModelConfig& config,
                                     const EngineOptions& options, const cuda::DeviceInfo& device,
                                     int64_t caches, int64_t workspace);

// "40 of 43 layers' experts"
std::string text_of(const WeightPlacement& placement);

}  // namespace cachalot
