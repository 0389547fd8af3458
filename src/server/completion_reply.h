// Events of an answer -> the JSON of /completions, whole or in chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer_reply.h"
#include "server/completion_fields.h"

namespace cachalot {

class CompletionReply final : public AnswerReply {
 public:
  // `call` outlives the reply.
  CompletionReply(const CompletionCall& call, bool logprobs);

  std::vector<Json> take(AnswerEvent& event) override;
  std::optional<Json> usage_chunk() const override;
  Json whole() const override;

 private:
  struct Choice {
    std::string text;
    std::vector<TokenLogprob> tokens;
    int64_t offset = 0;  // characters that have been sent
    std::string finish_reason;
    bool begun = false;
  };

  Json frame(Json choices) const;
  Json choice_json(int64_t index, const std::string& text, Json logprobs,
                   const std::string& finish_reason) const;
  Json chunk(int64_t index, const std::string& text, const std::vector<TokenLogprob>& tokens,
             const std::string& finish_reason);
  void take_end(const AnswerEvent& event);

  const CompletionCall& call_;
  bool logprobs_;
  std::string id_;
  int64_t created_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace cachalot
