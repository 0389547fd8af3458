// A model's weights in a device's memory: everything the device reads for every token, and as much
// of what is read here and there as fits.
#pragma once

#include <functional>
#include <vector>

#include "model/weights.h"

namespace cachalot {

// What else than the dense weights lies on the device. The rest stays where it was.
struct WeightPlacement {
  std::vector<bool> experts;  // by layer and draft stage: its routed and shared experts
  std::vector<bool> tables;   // by layer: its engram table; false where there is none
  int64_t bytes = 0;          // in all, dense weights included
};

// The largest placement of at most `bytes`: experts of the draft stages (the layers behind the
// first `backbone`) first, then of the layers from the first on, then engram tables. Without
// experts and tables if even the dense weights do not fit: see bytes.
WeightPlacement place_weights(const ModelWeights& weights, int64_t backbone, int64_t bytes);
// With no experts and no tables.
WeightPlacement place_dense_weights(const ModelWeights& weights);

// What a caller of copy_weights may want to do meanwhile.
struct CopyCallbacks {
  std::function<void(int64_t bytes)> on_progress;         // copied so far
  std::function<void(const ExpertsWeights&)> on_experts;  // those of a layer were copied
};

// The copies; views of what is not placed lie where those of `weights` do. Errors: the device has
// no room.
Result<ModelWeights> copy_weights(const ModelWeights& weights, const WeightPlacement& placement,
                                  const MemorySpace& memory, const CopyCallbacks& callbacks = {});

}  // namespace cachalot
