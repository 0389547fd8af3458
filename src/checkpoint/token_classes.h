// The engram class of every token as a file: 32-bit little-endian numbers by token id, for programs
// that have no tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"

namespace cachalot {

// Errors name the file: it cannot be read, holds no whole numbers, or negative ones.
Result<std::vector<int32_t>> read_token_classes(const std::filesystem::path& path);
Status write_token_classes(const std::filesystem::path& path, std::span<const int32_t> classes);

}  // namespace cachalot
