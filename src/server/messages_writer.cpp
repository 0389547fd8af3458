#include "server/messages_writer.h"

#include <utility>

#include "server/answer_ending.h"
#include "server/call_arguments.h"
#include "server/messages_error.h"

namespace cachalot {
namespace {

Json object_of_type(const char* type) { return Json(Json::Object{{"type", Json(type)}}); }

std::string_view stop_reason(const AnswerEvent& event) {
  if (is_cut_off(event)) return "max_tokens";
  if (event.finish_reason == "tool_calls") return "tool_use";
  return event.stop_sequence.empty() ? "end_turn" : "stop_sequence";
}

}  // namespace

MessagesWriter::MessagesWriter(std::string id, std::string model, std::string request_id)
    : id_(std::move(id)), model_(std::move(model)), request_id_(std::move(request_id)) {}

std::vector<ServerEvent> MessagesWriter::take(const AnswerEvent& event) {
  std::vector<ServerEvent> out;
  switch (event.kind) {
    case AnswerEvent::Kind::prefill:
      prompt_tokens_ = event.total;
      cached_tokens_ = event.cached;
      start(out);
      break;
    case AnswerEvent::Kind::delta:
      start(out);
      take_delta(event.delta, out);
      break;
    case AnswerEvent::Kind::finished:
      start(out);
      finish(event, out);
      break;
    case AnswerEvent::Kind::failed:
      fail_answer(event.error, out);
      break;
  }
  return out;
}

std::vector<ServerEvent> MessagesWriter::waiting() const {
  if (!started_) return {};
  return {{"ping", object_of_type("ping")}};
}

Json MessagesWriter::usage(int64_t output_tokens) const {
  return Json(Json::Object{
      {"input_tokens", Json::integer(prompt_tokens_ - cached_tokens_)},
      {"cache_creation_input_tokens", Json::integer(int64_t{0})},
      {"cache_read_input_tokens", Json::integer(cached_tokens_)},
      {"output_tokens", Json::integer(output_tokens)},
  });
}

void MessagesWriter::start(std::vector<ServerEvent>& out) {
  if (std::exchange(started_, true)) return;
  message_ = Json(Json::Object{
      {"id", Json(id_)},
      {"type", Json("message")},
      {"role", Json("assistant")},
      {"model", Json(model_)},
      {"content", Json(Json::Array{})},
      {"stop_reason", Json()},
      {"stop_sequence", Json()},
      {"usage", usage(0)},
  });
  Json data = object_of_type("message_start");
  data.set("message", message_);
  out.push_back({"message_start", std::move(data)});
}

void MessagesWriter::take_delta(const ParserEvent& delta, std::vector<ServerEvent>& out) {
  switch (delta.kind) {
    case ParserEvent::kReasoning:
      take_text(Block::thinking, delta.text, out);
      break;
    case ParserEvent::kContent:
      take_text(Block::text, delta.text, out);
      break;
    case ParserEvent::kCallStart: {
      Json block = object_of_type("tool_use");
      block.set("id", Json(delta.id));
      block.set("name",
                Json(delta.name_space.empty() ? delta.name : delta.name_space + "::" + delta.name));
      block.set("input", Json(Json::Object{}));
      open(Block::tool_use, std::move(block), out);
      break;
    }
    case ParserEvent::kArguments:
      text_ += delta.text;
      put_delta("input_json_delta", "partial_json", delta.text, out);
      break;
    case ParserEvent::kCallEnd:
      open_block_.set("input", arguments_object(text_, true));
      close(out);
      break;
    case ParserEvent::kWarning:
    case ParserEvent::kFailed:
    case ParserEvent::kFinished:
      break;
  }
}

void MessagesWriter::take_text(Block kind, const std::string& text, std::vector<ServerEvent>& out) {
  const bool thinking = kind == Block::thinking;
  const char* member = thinking ? "thinking" : "text";
  if (block_ != kind) {
    Json block = object_of_type(member);
    block.set(member, Json(""));
    if (thinking) block.set("signature", Json(""));
    open(kind, std::move(block), out);
  }
  text_ += text;
  put_delta(thinking ? "thinking_delta" : "text_delta", member, text, out);
}

void MessagesWriter::open(Block kind, Json block, std::vector<ServerEvent>& out) {
  close(out);
  block_ = kind;
  open_block_ = std::move(block);
  text_.clear();
  Json data = object_of_type("content_block_start");
  data.set("index", Json::integer(static_cast<int64_t>(content_.size())));
  data.set("content_block", open_block_);
  out.push_back({"content_block_start", std::move(data)});
}

void MessagesWriter::put_delta(const char* type, const char* member, const std::string& text,
                               std::vector<ServerEvent>& out) {
  Json delta = object_of_type(type);
  delta.set(member, Json(text));
  Json data = object_of_type("content_block_delta");
  data.set("index", Json::integer(static_cast<int64_t>(content_.size())));
  data.set("delta", std::move(delta));
  out.push_back({"content_block_delta", std::move(data)});
}

void MessagesWriter::close(std::vector<ServerEvent>& out) {
  const Block kind = std::exchange(block_, Block::none);
  if (kind == Block::none) return;
  if (kind == Block::text) open_block_.set("text", Json(text_));
  if (kind == Block::thinking) {
    open_block_.set("thinking", Json(text_));
    open_block_.set("signature", Json(id_));
    put_delta("signature_delta", "signature", id_, out);
  }
  Json data = object_of_type("content_block_stop");
  data.set("index", Json::integer(static_cast<int64_t>(content_.size())));
  out.push_back({"content_block_stop", std::move(data)});
  content_.push_back(std::move(open_block_));
}

void MessagesWriter::finish(const AnswerEvent& event, std::vector<ServerEvent>& out) {
  if (auto error = unreadable_call(event)) return fail_answer(std::move(*error), out);
  if (block_ == Block::tool_use) open_block_.set("input", arguments_object(text_, false));
  close(out);
  prompt_tokens_ = event.usage.prompt_tokens;
  cached_tokens_ = event.usage.cached_tokens;
  const Json reason(stop_reason(event));
  const Json sequence = event.stop_sequence.empty() ? Json() : Json(event.stop_sequence);
  Json total = usage(event.usage.completion_tokens);
  total.set("output_tokens_details",
            Json(Json::Object{{"thinking_tokens", Json::integer(event.usage.reasoning_tokens)}}));
  message_.set("content", Json(content_));
  message_.set("stop_reason", reason);
  message_.set("stop_sequence", sequence);
  message_.set("usage", total);
  Json data = object_of_type("message_delta");
  data.set("delta", Json(Json::Object{{"stop_reason", reason}, {"stop_sequence", sequence}}));
  data.set("usage", total);
  out.push_back({"message_delta", std::move(data)});
  out.push_back({"message_stop", object_of_type("message_stop")});
}

void MessagesWriter::fail_answer(ApiError error, std::vector<ServerEvent>& out) {
  error_ = std::move(error);
  out.push_back({"error", messages_error_json(*error_, request_id_)});
}

}  // namespace cachalot
