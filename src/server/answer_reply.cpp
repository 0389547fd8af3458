#include "server/answer_reply.h"

#include "server/reply.h"

namespace cachalot {
namespace {

void send_whole(HttpExchange& exchange, AnswerStream& answer, AnswerReply& reply) {
  std::optional<ApiError> error;
  const auto take = [&](AnswerEvent& event) {
    if (event.kind == AnswerEvent::Kind::failed) error = event.error;
    if (event.kind == AnswerEvent::Kind::delta || event.kind == AnswerEvent::Kind::finished)
      reply.take(event);
    return !error;
  };
  const bool complete = for_each_event(exchange, answer, take, [] {});
  if (error) return send_error(exchange, *error);
  if (complete) send_json(exchange, 200, reply.whole());
}

void send_stream(HttpExchange& exchange, AnswerStream& answer, AnswerReply& reply) {
  std::optional<EventStream> stream;
  const auto begun = [&]() -> EventStream& {
    if (!stream) stream.emplace(exchange);
    return *stream;
  };
  std::optional<ApiError> error;
  const auto take = [&](AnswerEvent& event) {
    if (event.kind == AnswerEvent::Kind::failed) error = event.error;
    if (error) return false;
    if (event.kind == AnswerEvent::Kind::prefill) {
      const auto chunk = reply.progress_chunk(event);
      return !chunk || begun().send(*chunk);
    }
    for (const Json& chunk : reply.take(event))
      if (!begun().send(chunk)) return false;
    return true;
  };
  const bool complete = for_each_event(exchange, answer, take, [&] { begun().keep_alive(); });
  if (error) {
    if (!stream) return send_error(exchange, *error);
    stream->send(error_json(*error));
    return stream->end();
  }
  if (!complete) return;
  if (const auto usage = reply.usage_chunk()) begun().send(*usage);
  if (reply.says_done()) begun().send_done();
  begun().end();
}

}  // namespace

void send_reply(HttpExchange& exchange, AnswerStream& answer, AnswerReply& reply, bool stream) {
  if (stream) {
    send_stream(exchange, answer, reply);
  } else {
    send_whole(exchange, answer, reply);
  }
}

}  // namespace cachalot
