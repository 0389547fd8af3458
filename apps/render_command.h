// `cachalot render`: JSON lines with a conversation -> {"prompt", "ids"}. Needs the tokenizer files
// only. The conversation's keys are those of chat/messages.h.
#pragma once

#include <CLI/CLI.hpp>
#include <iosfwd>
#include <string>

#include "base/result.h"

namespace cachalot {

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_render_command(CLI::App& app);

// What the subcommand does. Every line's result is written before the next line is read; an error
// names the line that it stopped at. Empty lines are skipped. One id stands for each image.
Status render_lines(const std::string& model, std::istream& in, std::ostream& out);

}  // namespace cachalot
