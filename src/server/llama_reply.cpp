#include "server/llama_reply.h"

#include <algorithm>

#include "server/chat_reply.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

Json bytes_json(std::string_view bytes) {
  Json::Array array;
  for (const char c : bytes) array.push_back(Json::integer(int64_t{static_cast<uint8_t>(c)}));
  return Json(std::move(array));
}

Json chance_json(const TokenLogprob& token) {
  std::string text;
  append_with_replacements(token.bytes, text);
  return Json(Json::Object{{"id", Json::integer(int64_t{token.id})},
                           {"token", Json(text)},
                           {"bytes", bytes_json(token.bytes)},
                           {"logprob", Json(std::max(token.logprob, -9999.0))}});
}

Json::Array probabilities_json(const std::vector<TokenLogprob>& tokens) {
  Json::Array array;
  for (const TokenLogprob& token : tokens) {
    Json::Array top;
    for (const TokenLogprob& other : token.top) top.push_back(chance_json(other));
    Json one = chance_json(token);
    one.set("top_logprobs", Json(std::move(top)));
    array.push_back(std::move(one));
  }
  return array;
}

}  // namespace

LlamaReply::LlamaReply(const LlamaCall& call) : call_(call), choices_(call.call.echo.size()) {}

Json LlamaReply::last(const AnswerEvent& event) const {
  const std::string reason = finish_reason_json(event.finish_reason);
  const char* type = reason == "length" ? "limit" : !event.stop_sequence.empty() ? "word" : "eos";
  return Json(Json::Object{
      {"index", Json::integer(event.choice)},
      {"content", Json("")},
      {"tokens", Json(Json::Array{})},
      {"stop", Json(true)},
      {"model", Json(call_.call.model)},
      {"tokens_predicted", Json::integer(event.usage.completion_tokens)},
      {"tokens_evaluated", Json::integer(event.usage.prompt_tokens)},
      {"tokens_cached", Json::integer(event.usage.cached_tokens)},
      {"truncated", Json(false)},
      {"stop_type", Json(type)},
      {"stopping_word", Json(event.stop_sequence)},
      {"timings", timings_json(event)},
  });
}

std::vector<Json> LlamaReply::take(AnswerEvent& event) {
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  Json::Array tokens;
  if (call_.tokens)
    for (const TokenLogprob& token : event.logprobs)
      tokens.push_back(Json::integer(int64_t{token.id}));
  choice.tokens.insert(choice.tokens.end(), tokens.begin(), tokens.end());
  if (event.kind == AnswerEvent::Kind::finished) {
    choice.end = last(event);
    choice.end.set("tokens", Json(std::move(tokens)));
    return {choice.end};
  }
  choice.text += event.delta.text;
  Json chunk(Json::Object{{"index", Json::integer(event.choice)},
                          {"content", Json(event.delta.text)},
                          {"tokens", Json(std::move(tokens))},
                          {"stop", Json(false)}});
  if (call_.call.logprobs) {
    Json::Array probabilities = probabilities_json(event.logprobs);
    choice.probabilities.insert(choice.probabilities.end(), probabilities.begin(),
                                probabilities.end());
    chunk.set("completion_probabilities", Json(std::move(probabilities)));
  }
  return {std::move(chunk)};
}

Json LlamaReply::whole() const {
  Json::Array all;
  for (const Choice& choice : choices_) {
    Json one = choice.end;
    one.set("content", Json(choice.text));
    one.set("tokens", Json(choice.tokens));
    if (call_.call.logprobs) one.set("completion_probabilities", Json(choice.probabilities));
    all.push_back(std::move(one));
  }
  return call_.several ? Json(std::move(all)) : std::move(all.front());
}

}  // namespace cachalot
