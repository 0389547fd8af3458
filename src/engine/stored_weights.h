// The part of a model that is read from disk when it is used.
#pragma once

#include <memory>

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "engine/expert_profile.h"
#include "model/placed_weights.h"
#include "model/weights.h"
#include "storage/weight_store.h"

namespace cachalot {

// Where the experts of every layer and draft stage and the engram tables lie.
StoredWeights stored_weights(const Checkpoint& checkpoint, const ModelWeights& weights);

// The least that the cache of experts takes. Errors: a checkpoint that lacks weights.
Result<int64_t> least_expert_cache(const Checkpoint& checkpoint);

// nullptr if the options ask for none. Errors: budgets for the reference backend;
// WeightStore::open's.
Result<std::unique_ptr<WeightStore>> open_weight_store(const Checkpoint& checkpoint,
                                                       const ModelWeights& weights,
                                                       const EngineOptions& options);

// Reads the hottest experts of the profile and keeps them, less room for what one token chooses in
// a layer, and without those that lie elsewhere; `elsewhere` may be nullptr. Errors: a disk that
// fails.
Status pin_experts(ExpertCache& cache, const ModelConfig& config, const ExpertProfile& profile,
                   const WeightPlacement* elsewhere);

}  // namespace cachalot
