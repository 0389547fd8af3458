#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// cachalot inspect MODEL|CONFIG [PATH]: the model's architecture (docs/explorer.md).
void add_inspect_command(CLI::App& app);

}  // namespace cachalot
