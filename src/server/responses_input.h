// The input of OpenAI's /v1/responses: items -> messages of the prompt encoder.
//
// What the model wrote between two inputs (reasoning, messages, calls) stands in the list as items
// of its own; here they become one assistant turn again. The exception are two messages in a row
// without a call: two turns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/messages.h"
#include "server/api_error.h"

namespace cachalot {

// `input`: a string, or an array of items. Errors name the item. Calls and outputs are matched.
ApiResult<std::vector<Message>> parse_responses_input(const Json& input);

// Reasoning in the form of `encrypted_content`, which is all that some clients give back. Nothing
// is secret in it: a mark and the text.
std::string pack_reasoning(std::string_view text);
// Empty if it is not of this form.
std::string unpack_reasoning(std::string_view packed);

}  // namespace cachalot
