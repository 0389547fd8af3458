// Weights without files: random contents of the right formats, wherever they shall lie.
#pragma once

#include "checkpoint/checkpoint.h"
#include "model/weights.h"

namespace cachalot::bench {

// Of a planned checkpoint: every tensor as in a random checkpoint (checkpoint/synth_fill.h), but
// large ones repeat their first megabytes, and the same tensors of all layers and experts begin
// alike. Errors: no room; see ModelWeights::bind.
Result<ModelWeights> make_weights(const Checkpoint& planned, const MemorySpace& memory);

}  // namespace cachalot::bench
