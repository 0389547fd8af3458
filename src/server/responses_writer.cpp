#include "server/responses_writer.h"

#include <iterator>
#include <utility>

#include "server/answer_ending.h"
#include "server/chat_reply.h"
#include "server/responses_input.h"

namespace cachalot {
namespace {

Json number(int64_t value) { return Json::integer(value); }

Json usage_of(const Usage& usage) {
  return Json(Json::Object{
      {"input_tokens", number(usage.prompt_tokens)},
      {"input_tokens_details", Json(Json::Object{{"cache_write_tokens", number(0)},
                                                 {"cached_tokens", number(usage.cached_tokens)}})},
      {"output_tokens", number(usage.completion_tokens)},
      {"output_tokens_details",
       Json(Json::Object{{"reasoning_tokens", number(usage.reasoning_tokens)}})},
      {"total_tokens", number(usage.prompt_tokens + usage.completion_tokens)},
  });
}

}  // namespace

ResponsesWriter::ResponsesWriter(ResponsesSettings settings) : settings_(std::move(settings)) {
  response_ = Json(Json::Object{
      {"id", Json("resp_" + settings_.id)},
      {"object", Json("response")},
      {"created_at", number(settings_.created_at)},
      {"status", Json("in_progress")},
      {"background", Json(false)},
      {"error", Json()},
      {"incomplete_details", Json()},
      {"output", Json(Json::Array{})},
      {"usage", Json()},
  });
  for (const Json::Member& member : *settings_.echo.object())
    response_.set(member.key, member.value);
}

std::vector<ServerEvent> ResponsesWriter::take(const AnswerEvent& event) {
  start();
  switch (event.kind) {
    case AnswerEvent::Kind::prefill:
      break;
    case AnswerEvent::Kind::delta:
      take_delta(event);
      break;
    case AnswerEvent::Kind::finished:
      finish(event);
      break;
    case AnswerEvent::Kind::failed:
      fail_answer(event.error);
      break;
  }
  return std::exchange(out_, {});
}

void ResponsesWriter::start() {
  if (std::exchange(started_, true)) return;
  put_response("response.created");
  put_response("response.in_progress");
}

void ResponsesWriter::take_delta(const AnswerEvent& event) {
  switch (event.delta.kind) {
    case ParserEvent::kReasoning:
      take_text(Item::reasoning, event);
      break;
    case ParserEvent::kContent:
      take_text(Item::message, event);
      break;
    case ParserEvent::kCallStart:
      begin_call(event.delta);
      break;
    case ParserEvent::kArguments:
      take_arguments(event.delta.text);
      break;
    case ParserEvent::kCallEnd:
      close("completed");
      break;
    case ParserEvent::kWarning:
    case ParserEvent::kFailed:
    case ParserEvent::kFinished:
      break;
  }
}

// Reasoning and messages are items with one part of text.
void ResponsesWriter::take_text(Item kind, const AnswerEvent& event) {
  const bool reasoning = kind == Item::reasoning;
  if (kind_ != kind) {
    if (reasoning) {
      open(kind, "rs_", {{"type", Json("reasoning")}, {"summary", Json(Json::Array{})}});
    } else {
      open(kind, "msg_", {{"type", Json("message")}, {"role", Json("assistant")}});
    }
    Json members = part_place();
    members.set("part", text_part());
    put("response.content_part.added", std::move(members));
  }
  text_ += event.delta.text;
  Json members = part_place();
  members.set("delta", Json(event.delta.text));
  if (!reasoning) {
    Json logprobs(Json::Array{});
    if (settings_.logprobs) logprobs = logprobs_json(event.logprobs);
    for (const Json& token : *logprobs.array()) logprobs_.push_back(token);
    members.set("logprobs", std::move(logprobs));
  }
  put(reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
      std::move(members));
}

void ResponsesWriter::begin_call(const ParserEvent& call) {
  const std::string qualified =
      call.name_space.empty() ? call.name : call.name_space + "::" + call.name;
  const bool custom = settings_.custom_tools.contains(qualified);
  const char* type = custom ? "custom_tool_call" : "function_call";
  Json::Object members{{"type", Json(type)}, {"call_id", Json(call.id)}, {"name", Json(call.name)}};
  if (!call.name_space.empty()) members.push_back({"namespace", Json(call.name_space)});
  members.push_back({custom ? "input" : "arguments", Json("")});
  input_ = InputArgument();
  open(custom ? Item::custom_tool_call : Item::function_call, custom ? "ctc_" : "fc_",
       std::move(members));
}

void ResponsesWriter::take_arguments(const std::string& arguments) {
  const bool custom = kind_ == Item::custom_tool_call;
  const std::string text = custom ? input_.push(arguments) : arguments;
  if (text.empty()) return;
  text_ += text;
  Json members = place();
  members.set("delta", Json(text));
  put(custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
      std::move(members));
}

void ResponsesWriter::open(Item kind, const char* prefix, Json::Object members) {
  close("completed");
  kind_ = kind;
  text_.clear();
  logprobs_.clear();
  item_ = Json(
      Json::Object{{"id", Json(fmt::format("{}{}_{}", prefix, settings_.id, output_.size()))}});
  for (Json::Member& member : members) item_.set(member.key, std::move(member.value));
  if (kind == Item::reasoning || kind == Item::message) item_.set("content", Json(Json::Array{}));
  item_.set("status", Json("in_progress"));
  Json added(Json::Object{{"output_index", number(std::ssize(output_))}, {"item", item_}});
  put("response.output_item.added", std::move(added));
}

// `status` is that of the item: completed or incomplete.
void ResponsesWriter::close(const char* status) {
  if (kind_ == Item::none) return;
  if (kind_ == Item::reasoning || kind_ == Item::message) {
    close_text();
  } else {
    close_call();
  }
  item_.set("status", Json(status));
  Json done(Json::Object{{"output_index", number(std::ssize(output_))}, {"item", item_}});
  put("response.output_item.done", std::move(done));
  output_.push_back(std::move(item_));
  kind_ = Item::none;
}

void ResponsesWriter::close_text() {
  const bool reasoning = kind_ == Item::reasoning;
  const Json part = text_part();
  Json text = part_place();
  text.set("text", Json(text_));
  if (!reasoning) text.set("logprobs", Json(logprobs_));
  put(reasoning ? "response.reasoning_text.done" : "response.output_text.done", std::move(text));
  Json members = part_place();
  members.set("part", part);
  put("response.content_part.done", std::move(members));
  item_.set("content", Json(Json::Array{part}));
  if (reasoning) item_.set("encrypted_content", Json(pack_reasoning(text_)));
}

void ResponsesWriter::close_call() {
  const bool custom = kind_ == Item::custom_tool_call;
  if (custom) {
    if (const std::string rest = input_.finish(); !rest.empty()) {
      text_ += rest;
      Json members = place();
      members.set("delta", Json(rest));
      put("response.custom_tool_call_input.delta", std::move(members));
    }
  }
  const char* member = custom ? "input" : "arguments";
  item_.set(member, Json(text_));
  Json members = place();
  if (!custom) members.set("name", *item_.find("name"));
  members.set(member, Json(text_));
  put(custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
      std::move(members));
}

void ResponsesWriter::finish(const AnswerEvent& event) {
  if (auto error = unreadable_call(event)) return fail_answer(std::move(*error));
  const bool cut_off = is_cut_off(event);
  close(cut_off ? "incomplete" : "completed");
  response_.set("status", Json(cut_off ? "incomplete" : "completed"));
  if (cut_off)
    response_.set("incomplete_details", Json(Json::Object{{"reason", Json("max_output_tokens")}}));
  response_.set("output", Json(output_));
  response_.set("usage", usage_of(event.usage));
  put_response(cut_off ? "response.incomplete" : "response.completed");
}

void ResponsesWriter::fail_answer(ApiError error) {
  error_ = std::move(error);
  response_.set("status", Json("failed"));
  response_.set("output", Json(output_));
  const bool ours = error_->status >= 500;
  response_.set("error", Json(Json::Object{
                             {"code", Json(ours ? "server_error" : error_->code)},
                             {"message", *error_json(*error_).find("error")->find("message")},
                         }));
  put_response("response.failed");
}

Json ResponsesWriter::text_part() const {
  if (kind_ == Item::reasoning)
    return Json(Json::Object{{"type", Json("reasoning_text")}, {"text", Json(text_)}});
  return Json(Json::Object{
      {"type", Json("output_text")},
      {"text", Json(text_)},
      {"annotations", Json(Json::Array{})},
      {"logprobs", Json(logprobs_)},
  });
}

Json ResponsesWriter::place() const {
  return Json(Json::Object{
      {"output_index", number(std::ssize(output_))},
      {"item_id", *item_.find("id")},
  });
}

Json ResponsesWriter::part_place() const {
  Json members = place();
  members.set("content_index", number(0));
  return members;
}

void ResponsesWriter::put(const char* type, Json members) {
  Json data(Json::Object{{"type", Json(type)}, {"sequence_number", number(sequence_++)}});
  for (Json::Member& member : *members.object()) data.set(member.key, std::move(member.value));
  out_.push_back({type, std::move(data)});
}

void ResponsesWriter::put_response(const char* type) {
  put(type, Json(Json::Object{{"response", response_}}));
}

}  // namespace cachalot
