#include "server/event_writer.h"

#include "server/reply.h"

namespace cachalot {
namespace {

using Clock = std::chrono::steady_clock;

// A stream that begins with its first event, and knows how long the client has heard nothing.
class TimedStream {
 public:
  explicit TimedStream(HttpExchange& exchange) : exchange_(exchange) {}

  bool begun() const { return stream_.has_value(); }
  bool overdue() const { return begun() && Clock::now() - latest_ >= kKeepAlive; }

  bool send(const std::vector<ServerEvent>& events) {
    for (const ServerEvent& event : events)
      if (!stream().send(event.name, event.data)) return false;
    return true;
  }
  bool keep_alive(const std::vector<ServerEvent>& events) {
    return events.empty() ? stream().keep_alive() : send(events);
  }
  void end() {
    if (stream_) stream_->end();
  }

 private:
  HttpExchange& exchange_;
  std::optional<EventStream> stream_;
  Clock::time_point latest_;

  EventStream& stream() {
    latest_ = Clock::now();
    if (!stream_) stream_.emplace(exchange_);
    return *stream_;
  }
};

void send_stream(HttpExchange& exchange, AnswerStream& answer, EventWriter& writer,
                 ErrorSender send_failure) {
  TimedStream stream(exchange);
  std::optional<ApiError> early;
  const auto take = [&](AnswerEvent& event) {
    if (event.kind == AnswerEvent::Kind::failed && !stream.begun()) {
      early = event.error;
      return false;
    }
    const std::vector<ServerEvent> events = writer.take(event);
    if (events.empty() && stream.overdue()) return stream.keep_alive(writer.waiting());
    return stream.send(events);
  };
  const bool complete =
      for_each_event(exchange, answer, take, [&] { stream.keep_alive(writer.waiting()); });
  if (early) return send_failure(exchange, *early);
  if (complete) stream.end();
}

void send_whole(HttpExchange& exchange, AnswerStream& answer, EventWriter& writer,
                ErrorSender send_failure) {
  const auto take = [&](AnswerEvent& event) {
    writer.take(event);
    return true;
  };
  if (!for_each_event(exchange, answer, take, [] {})) return;
  if (writer.error()) return send_failure(exchange, *writer.error());
  send_json(exchange, 200, writer.whole());
}

}  // namespace

void send_events(HttpExchange& exchange, AnswerStream& answer, EventWriter& writer, bool stream,
                 ErrorSender send_failure) {
  if (stream) {
    send_stream(exchange, answer, writer, send_failure);
  } else {
    send_whole(exchange, answer, writer, send_failure);
  }
}

}  // namespace cachalot
