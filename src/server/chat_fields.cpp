#include "server/chat_fields.h"

#include "server/common_fields.h"
#include "server/conversation_check.h"

namespace cachalot {
namespace {

Json* present(Json& object, std::string_view key) {
  Json* value = const_cast<Json*>(object.find(key));
  return value && !value->is_null() ? value : nullptr;
}

}  // namespace

ApiResult<Conversation> read_conversation(Json& body, const ChatOptions& options) {
  Json* messages = present(body, "messages");
  if (!messages) return refuse("messages", "expected an array of messages, found nothing");
  if (messages->array()) normalize_messages(*messages);
  CACHALOT_OK(check_messages(*messages));
  Json given(Json::Object{});
  given.set("messages", std::move(*messages));
  if (Json* tools = present(body, "tools")) {
    CACHALOT_OK(check_tools(*tools));
    given.set("tools", std::move(*tools));
  }
  if (Json* choice = present(body, "tool_choice")) given.set("tool_choice", std::move(*choice));
  CACHALOT_TRY(Conversation conversation, parse_conversation(given));
  const ToolChoice choice = conversation.options.tool_choice;
  conversation.options = options;
  conversation.options.tool_choice = choice;
  return conversation;
}

ApiStatus read_stream(const RequestFields& fields, bool& stream, bool& include_usage) {
  CACHALOT_TRY(const auto given, fields.boolean("stream"));
  stream = given.value_or(false);
  CACHALOT_TRY(const Json* options, fields.object("stream_options"));
  if (!options) return {};
  if (!stream) return refuse("stream_options", "expected \"stream\": true with it");
  const RequestFields inner(*options, "stream_options");
  CACHALOT_TRY(const auto usage, inner.boolean("include_usage"));
  include_usage = usage.value_or(false);
  return {};
}

ApiResult<ChatCall> read_chat_call(Json body, const Service& service) {
  const RequestFields fields(body);
  ChatCall call;
  call.request = service.new_request();
  ChatRequest& request = call.request;
  CACHALOT_TRY(call.model, read_model(fields, service));
  CACHALOT_OK(read_stream(fields, call.stream, call.include_usage));
  CACHALOT_TRY(const auto progress, fields.boolean("return_progress"));
  call.return_progress = progress.value_or(false);
  CACHALOT_OK(read_common_fields(fields, service, request));
  CACHALOT_OK(read_max_tokens(fields, 1, request));
  CACHALOT_OK(read_constraint(fields, request));
  CACHALOT_TRY(const auto logprobs, fields.boolean("logprobs"));
  request.logprobs = logprobs.value_or(false);
  CACHALOT_TRY(const auto top, fields.integer("top_logprobs", 0, kMostTopLogprobs));
  if (top && *top > 0 && !request.logprobs)
    return refuse("top_logprobs", "expected \"logprobs\": true with it");
  request.top_logprobs = top.value_or(0);
  CACHALOT_TRY(const auto parallel, fields.boolean("parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  for (const char* old : {"functions", "function_call"})
    if (fields.member(old)) return refuse(old, "use tools and tool_choice instead");
  CACHALOT_TRY([[maybe_unused]] const Json* metadata, fields.object("metadata"));
  CACHALOT_TRY([[maybe_unused]] const auto user, fields.string("user"));
  ChatOptions& options = request.conversation.options;
  CACHALOT_OK(read_thinking(fields, options));
  CACHALOT_TRY(request.conversation, read_conversation(body, ChatOptions(options)));
  return call;
}

}  // namespace cachalot
