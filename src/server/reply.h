// What handlers send: JSON, errors, streams of events.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "server/answer_stream.h"
#include "server/api_error.h"
#include "server/http.h"

namespace cachalot {

void send_json(HttpExchange& exchange, int status, const Json& json, HttpHeaders headers = {});
// Retry-After, where the error has one.
HttpHeaders retry_after(const ApiError& error);
// OpenAI's shape.
void send_error(HttpExchange& exchange, const ApiError& error);

// Server-sent events (text/event-stream). Functions return false once the client has gone.
class EventStream {
 public:
  // Sends the header.
  explicit EventStream(HttpExchange& exchange);

  bool send(const Json& data);                          // data: {...}
  bool send(std::string_view event, const Json& data);  // with an event: line
  bool send_done();                                     // data: [DONE]
  bool keep_alive();                                    // a comment
  void end();

 private:
  HttpExchange& exchange_;
};

// For the access log: tokens of the (last) prompt, those of it that were cached, and of all
// choices.
void note_usage(HttpExchange& exchange, const Usage& usage);

// How long a waiting client hears nothing at most.
inline constexpr std::chrono::seconds kKeepAlive{10};

// Calls `take` with every event of the answer. `idle` is called when nothing has happened for
// kKeepAlive. Ends early, cancelling the answer, when the client has gone or `take` returns false.
// True: all events were taken.
template <class Take, class Idle>
bool for_each_event(HttpExchange& exchange, AnswerStream& answer, Take&& take, Idle&& idle) {
  exchange.on_gone([&answer] { answer.cancel(); });
  Usage usage;
  while (!answer.done()) {
    std::optional<AnswerEvent> event = answer.next(kKeepAlive);
    if (exchange.gone()) break;
    if (!event) {
      if (!answer.done()) idle();
      continue;
    }
    if (event->kind == AnswerEvent::Kind::finished) {
      usage.prompt_tokens = event->usage.prompt_tokens;
      usage.cached_tokens = event->usage.cached_tokens;
      usage.completion_tokens += event->usage.completion_tokens;
    }
    if (!take(*event)) break;
  }
  note_usage(exchange, usage);
  const bool complete = answer.done() && !exchange.gone();
  exchange.on_gone({});
  if (!complete) answer.cancel();
  return complete;
}

// A new id: the prefix and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);
// Seconds since 1970.
int64_t unix_time();

}  // namespace cachalot
