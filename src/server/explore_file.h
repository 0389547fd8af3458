// The explorer as one file that asks no server for anything (`cachalot inspect --html`).
#pragma once

#include <string>
#include <string_view>

namespace cachalot {

// The page of /explore (web/explore.html) with its styles, scripts, KaTeX, those of KaTeX's fonts
// that formulas use, and `model_json` (src/inspect) inside.
std::string explore_file(std::string_view model_json);

}  // namespace cachalot
