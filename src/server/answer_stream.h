// One request on its way: the events of all its choices.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "server/answer_event.h"

namespace cachalot {

// Safe to use from several threads. Destroying it cancels what still runs.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;

  // Waits for the next event, at most that long. nullopt: nothing yet, or done().
  virtual std::optional<AnswerEvent> next(std::chrono::milliseconds wait) = 0;
  // Every choice has finished or failed, and next() has given out all events.
  virtual bool done() const = 0;
  // The choices end at once, with finish_reason cancelled.
  virtual void cancel() = 0;
};

}  // namespace cachalot
