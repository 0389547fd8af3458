// `generate`: token ids in, the most likely token ids out. What a program without a tokenizer can
// do with a model.
#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_generate_command(CLI::App& app);

}  // namespace cachalot
