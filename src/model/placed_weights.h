// A model's weights in a device's memory: everything the device reads for every token, shared
// experts included, and as much of what is read here and there as fits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/weights.h"

namespace cachalot {

// What else than the dense weights lies on the device. The rest stays where it was.
struct WeightPlacement {
  std::vector<std::vector<bool>> experts;  // by layer and draft stage, and expert
  std::vector<bool> tables;                // by layer: its engram table; false where there is none
  int64_t bytes = 0;                       // in all, dense weights included

  int64_t experts_placed() const;
  int64_t experts_in_all() const;
};

// One of the routed experts.
struct ExpertPlace {
  size_t layer = 0, expert = 0;
  bool operator==(const ExpertPlace&) const = default;
};

// Those of the draft stages (the layers behind the first `backbone`), then of the layers from the
// first on.
std::vector<ExpertPlace> experts_in_turn(const ModelWeights& weights, int64_t backbone);

// The largest placement of at most `bytes`: experts as `order` names them, each at most once, then
// engram tables. Without experts and tables if even the dense weights do not fit: see bytes.
WeightPlacement place_weights(const ModelWeights& weights, std::span<const ExpertPlace> order,
                              int64_t bytes);
// With no experts and no tables.
WeightPlacement place_dense_weights(const ModelWeights& weights);

// Of the experts that are not placed.
int64_t bytes_beside(const ModelWeights& weights, const WeightPlacement& placement);

// What a caller of copy_weights may want to do meanwhile.
struct CopyCallbacks {
  std::function<void(int64_t bytes)> on_progress;         // copied so far
  std::function<void(const ExpertsWeights&)> on_experts;  // of a layer all that are were copied
};

// The copies; views of what is not placed lie where those of `weights` do, experts in `beside`,
// unless that is nullptr. Errors: a memory has no room.
Result<ModelWeights> copy_weights(const ModelWeights& weights, const WeightPlacement& placement,
                                  const MemorySpace& memory, const MemorySpace* beside = nullptr,
                                  const CopyCallbacks& callbacks = {});

}  // namespace cachalot
