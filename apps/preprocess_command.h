// `cachalot preprocess`: what the model would see of a picture, as raw RGB. Needs no model.
#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_preprocess_command(CLI::App& app);

}  // namespace cachalot
