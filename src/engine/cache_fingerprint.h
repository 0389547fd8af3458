// What the bits of a saved state depend on, in one line of text.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

namespace cachalot {

// The checkpoint: configuration, every tensor's name, dtype, shape and place, and some bytes of
// some hundred tensors (all of them would be half a terabyte). The engine: its arithmetic, and the
// options that shape a state. The program's own bytes: the next version of a kernel may round
// otherwise, and nobody has to remember to say so. Errors: `program` cannot be read.
Result<std::string> cache_fingerprint(const Checkpoint& checkpoint, const Engine& engine,
                                      const std::filesystem::path& program = "/proc/self/exe");

}  // namespace cachalot
