// What the bits of a saved state depend on, in one line of text.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

namespace cachalot {

// The checkpoint: configuration, every tensor's name, dtype, shape and place, and some bytes of
// some hundred tensors (all of them would be half a terabyte). The engine: its arithmetic, and the
// options that shape a state.
std::string cache_fingerprint(const Checkpoint& checkpoint, const Engine& engine);

}  // namespace cachalot
