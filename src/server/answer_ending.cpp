#include "server/answer_ending.h"

namespace cachalot {

std::optional<ApiError> unreadable_call(const AnswerEvent& finished) {
  const std::string& failure = finished.message.failure;
  if (failure.empty()) return std::nullopt;
  return ApiError(500, fmt::format("the model wrote a call that cannot be read: {}", failure));
}

bool is_cut_off(const AnswerEvent& finished) {
  return finished.finish_reason != "stop" && finished.finish_reason != "tool_calls";
}

}  // namespace cachalot
