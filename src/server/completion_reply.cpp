#include "server/completion_reply.h"

#include <algorithm>

#include "server/chat_reply.h"
#include "server/reply.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// Tokens that hold a part of a character are told apart by their bytes.
std::string token_text(const TokenLogprob& token) {
  if (valid_utf8_prefix(token.bytes) == token.bytes.size()) return token.bytes;
  std::string text = "bytes:";
  for (const char c : token.bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

// `offset`: of the first token; moved behind the last. A token without logprob is the prompt's
// first.
Json legacy_logprobs(const std::vector<TokenLogprob>& tokens, bool first_has_none,
                     int64_t& offset) {
  Json::Array names, values, tops, offsets;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenLogprob& token = tokens[i];
    const bool none = i == 0 && first_has_none;
    names.push_back(Json(token_text(token)));
    values.push_back(none ? Json() : Json(std::max(token.logprob, -9999.0)));
    Json top(Json::Object{});
    for (const TokenLogprob& other : token.top)
      top.set(token_text(other), Json(std::max(other.logprob, -9999.0)));
    if (!token.top.empty()) top.set(token_text(token), Json(std::max(token.logprob, -9999.0)));
    tops.push_back(none || token.top.empty() ? Json() : std::move(top));
    offsets.push_back(Json::integer(offset));
    offset += characters(token.bytes);
  }
  return Json(Json::Object{{"tokens", Json(std::move(names))},
                           {"token_logprobs", Json(std::move(values))},
                           {"top_logprobs", Json(std::move(tops))},
                           {"text_offset", Json(std::move(offsets))}});
}

}  // namespace

CompletionReply::CompletionReply(const CompletionCall& call, bool logprobs)
    : call_(call),
      logprobs_(logprobs),
      id_(random_id("cmpl-")),
      created_(unix_time()),
      choices_(call.echo.size() * static_cast<size_t>(call.choices)) {}

Json CompletionReply::frame(Json choices) const {
  return Json(Json::Object{{"id", Json(id_)},
                           {"object", Json("text_completion")},
                           {"created", Json::integer(created_)},
                           {"model", Json(call_.model)},
                           {"choices", std::move(choices)}});
}

Json CompletionReply::choice_json(int64_t index, const std::string& text, Json logprobs,
                                  const std::string& finish_reason) const {
  return Json(
      Json::Object{{"text", Json(text)},
                   {"index", Json::integer(index)},
                   {"logprobs", std::move(logprobs)},
                   {"finish_reason", finish_reason.empty() ? Json() : Json(finish_reason)}});
}

Json CompletionReply::chunk(int64_t index, const std::string& text,
                            const std::vector<TokenLogprob>& tokens,
                            const std::string& finish_reason) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  Json logprobs;
  if (logprobs_) logprobs = legacy_logprobs(tokens, false, choice.offset);
  Json result =
      frame(Json(Json::Array{choice_json(index, text, std::move(logprobs), finish_reason)}));
  if (call_.include_usage) result.set("usage", Json());
  return result;
}

std::vector<Json> CompletionReply::take(AnswerEvent& event) {
  std::vector<Json> chunks;
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  if (!std::exchange(choice.begun, true)) {
    choice.text = call_.echo[static_cast<size_t>(event.choice / call_.choices)];
    if (!choice.text.empty()) chunks.push_back(chunk(event.choice, choice.text, {}, ""));
  }
  if (event.kind == AnswerEvent::Kind::finished) {
    take_end(event);
    chunks.push_back(chunk(event.choice, "", {}, choice.finish_reason));
    return chunks;
  }
  choice.text += event.delta.text;
  choice.tokens.insert(choice.tokens.end(), event.logprobs.begin(), event.logprobs.end());
  chunks.push_back(chunk(event.choice, event.delta.text, event.logprobs, ""));
  return chunks;
}

void CompletionReply::take_end(const AnswerEvent& event) {
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  choice.finish_reason = finish_reason_json(event.finish_reason);
  if (call_.echoes && logprobs_) {
    const int64_t unechoed =
        std::min(call_.unechoed[static_cast<size_t>(event.choice / call_.choices)],
                 std::ssize(event.prompt_logprobs));
    choice.tokens.insert(choice.tokens.begin(), event.prompt_logprobs.begin() + unechoed,
                         event.prompt_logprobs.end());
  }
  if (event.choice % call_.choices == 0) {
    usage_.prompt_tokens += event.usage.prompt_tokens;
    usage_.cached_tokens += event.usage.cached_tokens;
  }
  usage_.completion_tokens += event.usage.completion_tokens;
}

Json CompletionReply::whole() const {
  Json::Array array;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json logprobs;
    int64_t offset = 0;
    if (logprobs_) {
      const bool from_start =
          call_.echoes && call_.unechoed[i / static_cast<size_t>(call_.choices)] == 0;
      logprobs = legacy_logprobs(choice.tokens, from_start, offset);
    }
    array.push_back(choice_json(static_cast<int64_t>(i), choice.text, std::move(logprobs),
                                choice.finish_reason));
  }
  Json reply = frame(Json(std::move(array)));
  reply.set("usage", usage_json(usage_));
  return reply;
}

std::optional<Json> CompletionReply::usage_chunk() const {
  if (!call_.include_usage) return std::nullopt;
  Json result = frame(Json(Json::Array{}));
  result.set("usage", usage_json(usage_));
  return result;
}

}  // namespace cachalot
