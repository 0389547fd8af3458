// JSON as a checkpoint's files hold it, read strictly: a key given twice is an error, and so is a
// depth no honest file reaches.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cachalot {

// Errors: not JSON (with the position), a key given twice, deeper than 32 levels.
Result<nlohmann::json> parse_json_strictly(std::string_view text);

// What the parser found, without the bracketed name and number that it puts in front.
std::string json_problem(const nlohmann::json::exception& error);

}  // namespace cachalot
