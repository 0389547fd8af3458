// Answers as events that have names (Anthropic's and OpenAI's newer interface), and as one value
// put together from the same events.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer_stream.h"
#include "server/http.h"

namespace cachalot {

struct ServerEvent {
  std::string name;
  Json data;
};

class EventWriter {
 public:
  virtual ~EventWriter() = default;

  // Events of one answer, in order.
  virtual std::vector<ServerEvent> take(const AnswerEvent& event) = 0;
  // What shows a waiting client that there is progress; empty: nothing yet that it would
  // understand.
  virtual std::vector<ServerEvent> waiting() const = 0;

  // After the last event: the value, or why there is none.
  virtual const std::optional<ApiError>& error() const = 0;
  virtual const Json& whole() const = 0;
};

using ErrorSender = void (*)(HttpExchange& exchange, const ApiError& error);

// Answers the exchange. What goes wrong before the first event of a stream is an error of its own;
// after that the writer's events tell of it.
void send_events(HttpExchange& exchange, AnswerStream& answer, EventWriter& writer, bool stream,
                 ErrorSender send_failure);

}  // namespace cachalot
