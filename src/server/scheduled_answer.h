// The choices of one request, as the scheduler writes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/scheduler.h"
#include "server/answer_reader.h"
#include "server/answer_stream.h"

namespace cachalot {

struct AnswerSettings {
  StreamParserOptions parser;
  std::vector<std::string> stops;
  bool logprobs = false;
  bool skip_special = false;
  int64_t choices = 1;
  // Called on the scheduler's thread with what a choice has written, before its last event.
  std::function<void(const ParsedMessage& message, const std::vector<int32_t>& ids)> on_answer = {};
};

class ScheduledAnswer final : public AnswerStream {
 public:
  // `tokenizer` outlives every listener.
  ScheduledAnswer(const Tokenizer& tokenizer, AnswerSettings settings);
  ~ScheduledAnswer() override;

  // What the scheduler is to call for a choice; and the ticket it gave for it.
  GenerationListener listener(int64_t choice);
  void add(Ticket ticket);

  std::optional<AnswerEvent> next(std::chrono::milliseconds wait) override;
  bool done() const override;
  void cancel() override;

 private:
  struct Choice;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cachalot
