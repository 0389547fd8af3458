// `cachalot run`: one answer, or a chat.
#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError: 1 for
// an error, 130 for an answer that was interrupted.
void add_run_command(CLI::App& app);

}  // namespace cachalot
