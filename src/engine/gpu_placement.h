// What of a model lies on a GPU.
#pragma once

#include "backend/cuda/queue.h"
#include "engine/engine.h"
#include "engine/expert_profile.h"
#include "model/placed_weights.h"

namespace cachalot {

// What the vision tower takes, with the workspace of a large picture; 0 without one.
int64_t vision_memory(const ModelConfig& config);

// Device memory that kernels take besides the arena (cuda::Scratch), graphs and the driver, for
// steps of up to this many tokens.
int64_t kernel_memory(const ModelConfig& config, int64_t step_tokens);

// All experts in the order in which a GPU takes them: those of the profile, if there is one,
// hottest first, then the others in turn.
std::vector<ExpertPlace> experts_by_use(const ModelWeights& weights, const ModelConfig& config,
                                        const ExpertProfile* profile);

// caches, workspace: bytes; `profile` may be nullptr. Errors, each with the sizes that do not go
// together: the dense weights, caches and workspace do not fit; ExpertsOn::gpu and not all experts
// do.
Result<WeightPlacement> place_on_gpu(const ModelWeights& weights, const ModelConfig& config,
                                     const EngineOptions& options, const cuda::DeviceInfo& device,
                                     int64_t caches, int64_t workspace,
                                     const ExpertProfile* profile);

// "6100 of 15744 experts"
std::string text_of(const WeightPlacement& placement);

// Which experts the CPU computes, for Engine::arithmetic(); empty if it computes none.
std::string arithmetic_of(const WeightPlacement& placement);

}  // namespace cachalot
