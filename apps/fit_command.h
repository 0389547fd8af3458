#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// `fit`: what a model needs of this machine, before anything is loaded.
void add_fit_command(CLI::App& app);

}  // namespace cachalot
