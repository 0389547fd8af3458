// --drafts, --draft-method: how far ahead the draft head may run, and how drafts are checked.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "engine/draft_depth.h"

namespace cachalot {

struct DraftOptions {
  std::string drafts = "auto";    // off, on, auto or a number
  std::string method = "greedy";  // or probabilistic
};

// --drafts, --draft-method
void add_draft_options(CLI::App& command, DraftOptions& options);

// Errors: none of the words and not a number from 1 on. `block` is what the model drafts at a time.
Result<DraftParameters> draft_parameters(const DraftOptions& options, int64_t block);

}  // namespace cachalot
