// What tools, calls and results must be beyond their types: what the prompt encoder tolerates but
// no client means. For requests that are messages already (conversation_check.h is for JSON).
#pragma once

#include <string_view>
#include <vector>

#include "chat/messages.h"
#include "server/api_error.h"

namespace cachalot {

// The name of a tool or call: some text that can stand between quotes.
ApiStatus check_tool_name(std::string_view name, std::string_view where);

// Every call of an assistant message has an id of its own and exactly one result before the next
// assistant message or the end, and every result belongs to such a call. Errors name `field`, where
// the request holds its messages, and the id.
ApiStatus check_tool_results(const std::vector<Message>& messages, std::string_view field);

}  // namespace cachalot
