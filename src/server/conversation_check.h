// What a request's messages must be beyond their types: what the prompt encoder tolerates but no
// client means.
#pragma once

#include "server/api_error.h"

namespace cachalot {

// `messages` as received. Errors (400, naming the message): an unknown block type, an assistant
// message without content and calls, calls without ids or with equal ones, calls without exactly
// one tool message each right behind them, a tool message that answers no call, a last message
// nothing can follow.
ApiStatus check_messages(const Json& messages);

// A tools list: types other than function, equal names.
ApiStatus check_tools(const Json& tools);

// Rewrites what only differs in name: the role developer is system's, empty system messages go.
// Marks a last message of the assistant as one to continue.
void normalize_messages(Json& messages);

}  // namespace cachalot
