// What tools, calls and results must be beyond their types: what the prompt encoder tolerates but
// no client means. For requests that are messages already (conversation_check.h is for JSON).
#pragma once

#include <string_view>
#include <vector>

#include "chat/messages.h"
#include "server/request_fields.h"

namespace cachalot {

// The name of a tool or call: some text that can stand between quotes.
ApiStatus check_tool_name(std::string_view name, std::string_view where);

// The JSON schema of a tool's parameters: of an object, with keywords of the right types.
ApiStatus check_tool_parameters(const RequestFields& schema);

// Every call of an assistant message has an id of its own and exactly one result before the next
// assistant message or the end, and every result belongs to such a call. Errors name `field`, where
// the request holds its messages, and the id.
ApiStatus check_tool_results(const std::vector<Message>& messages, std::string_view field);

}  // namespace cachalot
