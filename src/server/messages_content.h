// The turns of Anthropic's /v1/messages: content blocks -> messages of the prompt encoder.
#pragma once

#include <string>

#include "chat/messages.h"
#include "server/api_error.h"

namespace cachalot {

// `where` is the place of the value in the request and stands in errors: "messages[2].content".

// The text of `system`, or of a system message within the conversation: a string, or text blocks,
// which an empty line joins.
ApiResult<std::string> parse_messages_system(const Json& content, const std::string& where);

// One entry of `messages`. Thinking blocks become the reasoning of an assistant turn; redacted ones
// hold nothing that could be read and are left out. An assistant turn that is `last` is a prefix:
// the answer goes on from it.
ApiResult<Message> parse_messages_turn(const Json& turn, bool last, const std::string& where);

}  // namespace cachalot
