#include "server/combined_answer.h"

#include <algorithm>

namespace cachalot {

std::optional<AnswerEvent> CombinedAnswer::next(std::chrono::milliseconds wait) {
  while (current_ + 1 < answers_.size() && answers_[current_]->done()) ++current_;
  std::optional<AnswerEvent> event = answers_[current_]->next(wait);
  if (event) event->choice += static_cast<int64_t>(current_) * choices_;
  return event;
}

bool CombinedAnswer::done() const {
  return std::ranges::all_of(answers_, [](const auto& answer) { return answer->done(); });
}

void CombinedAnswer::cancel() {
  for (const auto& answer : answers_) answer->cancel();
}

}  // namespace cachalot
