#include "server/chat_reply.h"

#include <algorithm>
#include <cmath>

#include "server/reply.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

std::string qualified(const std::string& name_space, const std::string& name) {
  return name_space.empty() ? name : name_space + "::" + name;
}

std::string readable(std::string_view bytes) {
  std::string text;
  append_with_replacements(bytes, text);
  return text;
}

Json one_logprob(const TokenLogprob& token) {
  Json::Array bytes;
  for (const char c : token.bytes)
    bytes.push_back(Json::integer(int64_t{static_cast<unsigned char>(c)}));
  return Json(Json::Object{{"token", Json(readable(token.bytes))},
                           // JSON has no infinity.
                           {"logprob", Json(std::max(token.logprob, -9999.0))},
                           {"bytes", Json(std::move(bytes))}});
}

Json call_delta(const ParserEvent& event) {
  Json::Object call{{"index", Json::integer(static_cast<int64_t>(event.call))}};
  if (event.kind == ParserEvent::kCallStart) {
    call.push_back({"id", Json(event.id)});
    call.push_back({"type", Json("function")});
    call.push_back(
        {"function", Json(Json::Object{{"name", Json(qualified(event.name_space, event.name))},
                                       {"arguments", Json("")}})});
  } else {
    call.push_back({"function", Json(Json::Object{{"arguments", Json(event.text)}})});
  }
  return Json(Json::Object{{"tool_calls", Json(Json::Array{Json(std::move(call))})}});
}

double rounded(double value) { return std::round(value * 1e3) / 1e3; }
double rate(double count, double seconds) { return seconds > 0 ? rounded(count / seconds) : 0; }

}  // namespace

Json logprobs_json(const std::vector<TokenLogprob>& tokens) {
  Json::Array array;
  for (const TokenLogprob& token : tokens) {
    Json json = one_logprob(token);
    Json::Array top;
    for (const TokenLogprob& other : token.top) top.push_back(one_logprob(other));
    json.set("top_logprobs", Json(std::move(top)));
    array.push_back(std::move(json));
  }
  return Json(std::move(array));
}

Json tool_calls_json(const std::vector<ParsedCall>& calls) {
  Json::Array array;
  for (const ParsedCall& call : calls) {
    Json function(Json::Object{{"name", Json(qualified(call.name_space, call.name))},
                               {"arguments", Json(call.arguments)}});
    array.push_back(Json(Json::Object{
        {"id", Json(call.id)}, {"type", Json("function")}, {"function", std::move(function)}}));
  }
  return Json(std::move(array));
}

Json usage_json(const Usage& usage) {
  const auto number = [](int64_t value) { return Json::integer(value); };
  return Json(Json::Object{
      {"prompt_tokens", number(usage.prompt_tokens)},
      {"completion_tokens", number(usage.completion_tokens)},
      {"total_tokens", number(usage.prompt_tokens + usage.completion_tokens)},
      {"prompt_cache_hit_tokens", number(usage.cached_tokens)},
      {"prompt_cache_miss_tokens", number(usage.prompt_tokens - usage.cached_tokens)},
      {"prompt_tokens_details", Json(Json::Object{{"cached_tokens", number(usage.cached_tokens)}})},
      {"completion_tokens_details",
       Json(Json::Object{{"reasoning_tokens", number(usage.reasoning_tokens)}})},
  });
}

void add_usage(Usage& sum, const Usage& usage, bool first) {
  if (first) {
    sum.prompt_tokens = usage.prompt_tokens;
    sum.cached_tokens = usage.cached_tokens;
  }
  sum.cached_tokens = std::min(sum.cached_tokens, usage.cached_tokens);
  sum.completion_tokens += usage.completion_tokens;
  sum.reasoning_tokens += usage.reasoning_tokens;
}

Json timings_json(const AnswerEvent& end) {
  const Timings& timings = end.timings;
  const auto computed = static_cast<double>(end.usage.prompt_tokens - end.usage.cached_tokens);
  const auto written = static_cast<double>(end.usage.completion_tokens);
  return Json(Json::Object{
      {"queue_ms", Json(rounded(timings.queue_seconds * 1e3))},
      {"cache_n", Json::integer(end.usage.cached_tokens)},
      {"prompt_n", Json::integer(end.usage.prompt_tokens - end.usage.cached_tokens)},
      {"prompt_ms", Json(rounded(timings.prefill_seconds * 1e3))},
      {"prompt_per_second", Json(rate(computed, timings.prefill_seconds))},
      {"predicted_n", Json::integer(end.usage.completion_tokens)},
      {"predicted_ms", Json(rounded(timings.decode_seconds * 1e3))},
      {"predicted_per_second", Json(rate(std::max(written - 1, 0.0), timings.decode_seconds))},
      {"draft_n", Json::integer(timings.drafted)},
      {"draft_n_accepted", Json::integer(timings.accepted)},
  });
}

// A server that ran out of time ended the answer early, as a length limit would.
std::string finish_reason_json(const std::string& reason) {
  return reason == "cancelled" || reason == "deadline" ? "length" : reason;
}

ChatReply::ChatReply(const ChatCall& call)
    : id_(random_id("chatcmpl-")),
      model_(call.model),
      created_(unix_time()),
      logprobs_(call.request.logprobs),
      include_usage_(call.include_usage),
      return_progress_(call.return_progress),
      choices_(static_cast<size_t>(call.request.choices)) {}

Json ChatReply::frame(const char* object, Json choices) const {
  return Json(Json::Object{{"id", Json(id_)},
                           {"object", Json(object)},
                           {"created", Json::integer(created_)},
                           {"model", Json(model_)},
                           {"system_fingerprint", Json()},
                           {"choices", std::move(choices)}});
}

Json ChatReply::message_json(const ParsedMessage& parsed) const {
  Json message(Json::Object{{"role", Json("assistant")}, {"content", Json(parsed.content)}});
  if (!parsed.reasoning_content.empty())
    message.set("reasoning_content", Json(parsed.reasoning_content));
  if (parsed.tool_calls.empty()) return message;
  if (parsed.content.empty()) message.set("content", Json());
  message.set("tool_calls", tool_calls_json(parsed.tool_calls));
  return message;
}

Json ChatReply::whole() const {
  Json::Array array;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json logprobs;
    if (logprobs_) {
      logprobs = Json(Json::Object{{"content", logprobs_json(choice.content_logprobs)}});
      if (!choice.reasoning_logprobs.empty())
        logprobs.set("reasoning_content", logprobs_json(choice.reasoning_logprobs));
    }
    array.push_back(
        Json(Json::Object{{"index", Json::integer(static_cast<int64_t>(i))},
                          {"message", message_json(choice.end.message)},
                          {"logprobs", std::move(logprobs)},
                          {"finish_reason", Json(finish_reason_json(choice.end.finish_reason))}}));
  }
  Json reply = frame("chat.completion", Json(std::move(array)));
  reply.set("usage", usage_json(usage_));
  reply.set("timings", timings_json(choices_.front().end));
  return reply;
}

Json ChatReply::chunk(int64_t choice, Json delta, Json logprobs,
                      const std::string& finish_reason) const {
  Json one(Json::Object{{"index", Json::integer(choice)},
                        {"delta", std::move(delta)},
                        {"logprobs", std::move(logprobs)},
                        {"finish_reason", finish_reason.empty() ? Json() : Json(finish_reason)}});
  Json result = frame("chat.completion.chunk", Json(Json::Array{std::move(one)}));
  if (include_usage_) result.set("usage", Json());
  return result;
}

std::vector<Json> ChatReply::take(AnswerEvent& event) {
  std::vector<Json> chunks;
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  if (!std::exchange(choice.begun, true)) {
    chunks.push_back(chunk(event.choice,
                           Json(Json::Object{{"role", Json("assistant")}, {"content", Json("")}}),
                           Json(), ""));
  }
  if (event.kind == AnswerEvent::Kind::finished) {
    chunks.push_back(last_chunk(event));
    choice.end = std::move(event);
    return chunks;
  }
  const ParserEvent::Kind kind = event.delta.kind;
  if (kind == ParserEvent::kCallEnd) return chunks;
  chunks.push_back(delta_chunk(event));
  if (kind == ParserEvent::kReasoning)
    std::ranges::move(event.logprobs, std::back_inserter(choice.reasoning_logprobs));
  if (kind == ParserEvent::kContent)
    std::ranges::move(event.logprobs, std::back_inserter(choice.content_logprobs));
  return chunks;
}

Json ChatReply::delta_chunk(const AnswerEvent& event) const {
  const ParserEvent& delta = event.delta;
  if (delta.kind != ParserEvent::kReasoning && delta.kind != ParserEvent::kContent)
    return chunk(event.choice, call_delta(delta), Json(), "");
  const char* key = delta.kind == ParserEvent::kReasoning ? "reasoning_content" : "content";
  Json logprobs;
  if (logprobs_) logprobs = Json(Json::Object{{key, logprobs_json(event.logprobs)}});
  return chunk(event.choice, Json(Json::Object{{key, Json(delta.text)}}), std::move(logprobs), "");
}

Json ChatReply::last_chunk(const AnswerEvent& event) {
  add_usage(usage_, event.usage, ended_++ == 0);
  Json result =
      chunk(event.choice, Json(Json::Object{}), Json(), finish_reason_json(event.finish_reason));
  if (ended_ < std::ssize(choices_)) return result;
  if (!include_usage_) result.set("usage", usage_json(usage_));
  result.set("timings", timings_json(event));
  return result;
}

// Several choices share their prompt: the first tells for all.
std::optional<Json> ChatReply::progress_chunk(const AnswerEvent& event) const {
  if (!return_progress_ || event.choice != 0) return std::nullopt;
  Json result = frame("chat.completion.chunk", Json(Json::Array{}));
  if (include_usage_) result.set("usage", Json());
  result.set("prompt_progress", Json(Json::Object{{"total", Json::integer(event.total)},
                                                  {"cache", Json::integer(event.cached)},
                                                  {"processed", Json::integer(event.done)}}));
  return result;
}

std::optional<Json> ChatReply::usage_chunk() const {
  if (!include_usage_) return std::nullopt;
  Json result = frame("chat.completion.chunk", Json(Json::Array{}));
  result.set("usage", usage_json(usage_));
  return result;
}

}  // namespace cachalot
