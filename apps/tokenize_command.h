// `cachalot tokenize`: JSON lines {"text"} -> {"ids"}, or the reverse. Needs the tokenizer files
// only.
#pragma once

#include <CLI/CLI.hpp>
#include <iosfwd>
#include <string>

#include "base/result.h"

namespace cachalot {

struct TokenizeOptions {
  std::string model;
  bool decode = false;
  bool compatible = false;
  std::string map;  // a file to write the engram classes to
};

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_tokenize_command(CLI::App& app);

// What the subcommand does. Every line's result is written before the next line is read; an error
// names the line that it stopped at. Empty lines are skipped.
Status tokenize_lines(const TokenizeOptions& options, std::istream& in, std::ostream& out);

// What --map does instead.
Status write_token_map(const TokenizeOptions& options);

}  // namespace cachalot
