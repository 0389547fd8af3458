// Events of an answer -> the JSON of llama-server's own /completion.
#pragma once

#include "server/answer_reply.h"
#include "server/llama_fields.h"

namespace cachalot {

class LlamaReply final : public AnswerReply {
 public:
  // `call` outlives the reply.
  explicit LlamaReply(const LlamaCall& call);

  std::vector<Json> take(AnswerEvent& event) override;
  std::optional<Json> usage_chunk() const override { return std::nullopt; }
  bool says_done() const override { return false; }
  Json whole() const override;

 private:
  struct Choice {
    std::string text;
    Json::Array probabilities, tokens;
    Json end;  // what is said at the end, without the text
  };

  Json last(const AnswerEvent& event) const;

  const LlamaCall& call_;
  std::vector<Choice> choices_;  // one per prompt
};

}  // namespace cachalot
