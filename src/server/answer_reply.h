// The common way of /chat/completions and /completions from events to bytes.
#pragma once

#include <optional>
#include <vector>

#include "server/answer_stream.h"
#include "server/http.h"

namespace cachalot {

// Takes the events of an answer in order.
class AnswerReply {
 public:
  virtual ~AnswerReply() = default;

  // The chunks of a stream for a delta or a finished event. The event may be taken apart.
  virtual std::vector<Json> take(AnswerEvent& event) = 0;
  // The chunk of a prefill event, if the client asked for such.
  virtual std::optional<Json> progress_chunk(const AnswerEvent&) const { return std::nullopt; }
  // The last chunk, if there is one; after all events.
  virtual std::optional<Json> usage_chunk() const = 0;
  // Whether a stream ends with [DONE].
  virtual bool says_done() const { return true; }
  // Everything in one; after all events.
  virtual Json whole() const = 0;
};

// Answers the exchange. A failure before the first chunk becomes an error of its own; after it, an
// error in the stream, which then has no [DONE].
void send_reply(HttpExchange& exchange, AnswerStream& answer, AnswerReply& reply, bool stream);

}  // namespace cachalot
