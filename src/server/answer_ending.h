// How an answer ended, for interfaces with words of their own for it. A call that cannot be read is
// an error there: their clients run the calls that a finished answer holds.
#pragma once

#include <optional>

#include "server/answer_event.h"

namespace cachalot {

// Of a `finished` event; absent if all calls are good.
std::optional<ApiError> unreadable_call(const AnswerEvent& finished);

// Whether the answer was cut off: by its length, or by a server that ran out of time for it.
bool is_cut_off(const AnswerEvent& finished);

}  // namespace cachalot
