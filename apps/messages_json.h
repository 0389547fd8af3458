// The inverse of parse_conversation for what an interactive chat can hold.
#pragma once

#include "chat/messages.h"

namespace cachalot {

// {"messages": [...], "tools": [...], "thinking": ..., "effort": ...}; `conversation` holds a Chat
// of text only.
Json conversation_json(const Conversation& conversation);

}  // namespace cachalot
