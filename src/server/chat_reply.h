// Events of an answer -> the JSON of /chat/completions, whole or in chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer_reply.h"
#include "server/chat_fields.h"

namespace cachalot {

class ChatReply final : public AnswerReply {
 public:
  explicit ChatReply(const ChatCall& call);

  // The first chunk of a choice carries the role, the last of all the usage (or, with
  // include_usage, a chunk behind it) and timings.
  std::vector<Json> take(AnswerEvent& event) override;
  std::optional<Json> progress_chunk(const AnswerEvent& event) const override;
  std::optional<Json> usage_chunk() const override;
  Json whole() const override;

 private:
  Json frame(const char* object, Json choices) const;
  Json chunk(int64_t choice, Json delta, Json logprobs, const std::string& finish_reason) const;

  Json message_json(const ParsedMessage& message) const;
  Json delta_chunk(const AnswerEvent& event) const;
  Json last_chunk(const AnswerEvent& event);

  struct Choice {
    bool begun = false;
    std::vector<TokenLogprob> content_logprobs, reasoning_logprobs;
    AnswerEvent end;
  };

  std::string id_, model_;
  int64_t created_;
  bool logprobs_, include_usage_, return_progress_;
  std::vector<Choice> choices_;
  Usage usage_;
  int64_t ended_ = 0;  // choices
};

// OpenAI's and DeepSeek's names for what an answer took. Of several choices the prompt counts once.
Json usage_json(const Usage& usage);
void add_usage(Usage& sum, const Usage& usage, bool first);
// llama-server's timings: counts, milliseconds, tokens per second.
Json timings_json(const AnswerEvent& end);
// stop, length, tool_calls; what ended otherwise in a way clients know.
std::string finish_reason_json(const std::string& reason);
// [{"token", "logprob", "bytes", "top_logprobs"}]
Json logprobs_json(const std::vector<TokenLogprob>& tokens);
// [{id, type, function: {name, arguments}}], a namespace in front of the name.
Json tool_calls_json(const std::vector<ParsedCall>& calls);

}  // namespace cachalot
