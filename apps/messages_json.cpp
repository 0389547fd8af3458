#include "messages_json.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {
namespace {

std::string text_of(const std::vector<ContentBlock>& blocks) {
  std::string text;
  for (const ContentBlock& block : blocks) {
    if (const auto* part = std::get_if<TextBlock>(&block)) text += part->text;
    const auto* result = std::get_if<ToolResultBlock>(&block);
    if (result == nullptr) continue;
    for (const auto& part : result->parts)
      if (const auto* piece = std::get_if<TextBlock>(&part)) text += piece->text;
  }
  return text;
}

// With pictures, the list of a user message's parts.
Json content_json(const std::vector<ContentBlock>& blocks) {
  const auto is_image = [](const ContentBlock& block) {
    return std::holds_alternative<ImageRecord>(block);
  };
  if (std::none_of(blocks.begin(), blocks.end(), is_image)) return Json(text_of(blocks));
  Json::Array parts;
  for (const ContentBlock& block : blocks) {
    if (const auto* text = std::get_if<TextBlock>(&block)) {
      parts.push_back(Json(Json::Object{{"type", Json("text")}, {"text", Json(text->text)}}));
    } else if (const auto* image = std::get_if<ImageRecord>(&block)) {
      parts.push_back(
          Json(Json::Object{{"type", Json("image_url")}, {"image_url", Json(image->location)}}));
    }
  }
  return Json(std::move(parts));
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kLatestReminder:
      return "latest_reminder";
  }
  return "";
}

Json call_json(const ToolCall& call) {
  Json function(
      Json::Object{{"name", Json(call.qualified())}, {"arguments", Json(call.arguments.dump())}});
  return Json(Json::Object{
      {"id", Json(call.id)}, {"type", Json("function")}, {"function", std::move(function)}});
}

Json message_json(const Message& message) {
  Json json(Json::Object{{"role", Json(role_name(message.role))},
                         {"content", content_json(message.blocks)}});
  if (!message.reasoning_content.empty())
    json.set("reasoning_content", Json(message.reasoning_content));
  if (message.role == Role::kTool)
    json.set("tool_call_id", Json(std::get<ToolResultBlock>(message.blocks[0]).tool_call_id));
  Json::Array calls;
  for (const ToolCall& call : message.tool_calls) calls.push_back(call_json(call));
  if (!calls.empty()) json.set("tool_calls", Json(std::move(calls)));
  return json;
}

}  // namespace

Json conversation_json(const Conversation& conversation) {
  const Chat* chat = std::get_if<Chat>(&conversation.input);
  CACHALOT_CHECK(chat != nullptr, "only chats are saved");
  Json::Array messages, tools;
  for (const Message& message : chat->messages) {
    messages.push_back(message_json(message));
    for (const Tool& tool : message.tools)
      tools.push_back(Json(Json::Object{{"type", Json("function")}, {"function", tool.function}}));
  }
  Json json(Json::Object{{"messages", Json(std::move(messages))}});
  if (!tools.empty()) json.set("tools", Json(std::move(tools)));
  json.set("thinking", Json(conversation.options.thinking));
  json.set("effort", Json::integer(int64_t{conversation.options.effort}));
  return json;
}

}  // namespace cachalot
