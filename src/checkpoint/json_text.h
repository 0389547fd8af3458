// JSON as a checkpoint's files hold it, read strictly: a key given twice is an error, and so is a
// depth no honest file reaches.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace cachalot {

// Errors: not JSON (with the position), a key given twice, deeper than 32 levels.
Result<nlohmann::json> parse_json_strictly(std::string_view text);

}  // namespace cachalot
