// The exact inverse of the prompt encoder, for tests: one finished answer with its end token, no
// tolerance.
#pragma once

#include <string_view>

#include "base/result.h"
#include "chat/parsed_message.h"

namespace cachalot {

// Errors: no </think> in thinking mode, no end token, a block of calls that differs from what the
// encoder writes, a repeated parameter, text after the block, control spellings in the reasoning or
// content.
Result<ParsedMessage> parse_strict(std::string_view completion, bool thinking);

}  // namespace cachalot
