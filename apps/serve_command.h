#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// Answers over HTTP until SIGTERM or SIGINT.
void add_serve_command(CLI::App& app);

}  // namespace cachalot
