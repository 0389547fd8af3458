// What the command line takes as a size or as a number with a fraction.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace cachalot {

// "16GiB", "1.5GB", "500M", "4096" -> bytes; K, M, G, T, P count by 1000, with "iB" by 1024.
// CLI::ValidationError: anything else, or 2^62 and more.
int64_t bytes_of_size(const std::string& text);

// Turns a size into the number of its bytes.
CLI::Validator size_in_bytes();
// A number of that range; NaN is none.
CLI::Validator number_from(double least, double most);

}  // namespace cachalot
