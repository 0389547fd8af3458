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

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_synth_command(CLI::App& app);

// What the subcommand does, with a progress bar on stderr if that is a terminal.
Status synthesize(const SynthCommandOptions& options);

}  // namespace cachalot
