// The model that commands use when none is named: the one that comes with the source.
#pragma once

#include <filesystem>
#include <string>

namespace cachalot {

// "models/nano" in the current directory, else in the source tree this program was built from.
inline std::string default_model() {
  std::error_code ignored;
  if (std::filesystem::exists("models/nano", ignored)) return "models/nano";
  return CACHALOT_SOURCE_DIR "/models/nano";
}

}  // namespace cachalot
