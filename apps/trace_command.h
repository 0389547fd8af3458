// `cachalot trace`: records what every layer does, for comparison with a golden trace.
#pragma once

#include <CLI/CLI.hpp>

void add_trace_command(CLI::App& app);
