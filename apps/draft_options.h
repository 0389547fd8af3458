// --drafts: how many tokens ahead the draft head may run.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "engine/draft_depth.h"

namespace cachalot {

// --drafts off|on|auto|N
void add_draft_option(CLI::App& command, std::string& drafts);

// Errors: none of the words and not a number from 1 on. `block` is what the model drafts at a time.
Result<DraftParameters> draft_parameters(const std::string& drafts, int64_t block);

}  // namespace cachalot
