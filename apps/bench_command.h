// cachalot bench: how fast this machine runs a model, against what the machine allows.
#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

void add_bench_command(CLI::App& app);

}  // namespace cachalot
