// Text files the program leaves behind.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace cachalot {

// Whether write_text_file can succeed, asked before the work that fills the file. Errors: a folder,
// a folder that is not there or may not be written to, a file that may not be.
Status check_writable(const std::filesystem::path& path);

// A regular file, or the one a link names, is replaced as a whole or left as it was; anything else
// (a pipe, a device) is written to. Errors: the system's, with the file's name; nothing is left.
Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace cachalot
