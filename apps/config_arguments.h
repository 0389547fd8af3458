// Options from a file, for commands that are started by others than people.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cachalot {

// `arguments` of `command`, without its name, and for --config FILE among them the options in the
// file: lines of NAME = VALUE, NAME = [VALUE, ...]; # and ; begin comments. What the arguments name
// themselves is not taken from the file. CLI::FileError: it cannot be read.
std::vector<std::string> with_config(const CLI::App& command, std::vector<std::string> arguments);

}  // namespace cachalot
