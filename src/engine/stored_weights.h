// The part of a model that is read from disk when it is used.
#pragma once

#include <memory>

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "model/weights.h"
#include "storage/weight_store.h"

namespace cachalot {

// Where the experts of every layer and draft stage and the engram tables lie.
StoredWeights stored_weights(const Checkpoint& checkpoint, const ModelWeights& weights);

// nullptr if the options ask for none. With a profile, its experts are read before this returns.
// Errors: budgets for the reference backend; WeightStore::open's; read_expert_profile's; a profile
// without an expert cache; a disk that fails.
Result<std::unique_ptr<WeightStore>> open_weight_store(const Checkpoint& checkpoint,
                                                       const ModelWeights& weights,
                                                       const EngineOptions& options);

}  // namespace cachalot
