// `cachalot synth CONFIG OUT`: a random checkpoint in the released layout.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "checkpoint/synth.h"

namespace cachalot {

struct SynthCommandOptions {
  std::string config;  // a configuration file of either form, or a checkpoint folder
  std::string out;     // a folder that does not exist yet
  SynthReduction reduction;
  uint64_t seed = 0;
};

// Adds the subcommand. Its callback prints an error to stderr and throws
// CLI::RuntimeError.
void add_synth_command(CLI::App& app);

}  // namespace cachalot
