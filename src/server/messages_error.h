// Errors as Anthropic's clients read them.
#pragma once

#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace cachalot {

// Whether a path belongs to this API, so that errors met before its handler runs have its shape.
bool is_messages_path(std::string_view path);

// 503 becomes 529, which these clients know as "overloaded"; the others stay.
int messages_status(const ApiError& error);

// {"type": "error", "error": {"type", "message"}, "request_id"}
Json messages_error_json(const ApiError& error, std::string_view request_id);

void send_messages_error(HttpExchange& exchange, const ApiError& error);

}  // namespace cachalot
