// An answer as one JSON object, and messages as they are saved.
#pragma once

#include "answer.h"
#include "chat/json_value.h"

namespace cachalot {

// ids, text, reasoning_content, content, tool_calls, finish_reason, usage, timings; `warnings` and
// `failure` only if there are any.
Json answer_json(const Answer& answer, double load_seconds);

}  // namespace cachalot
