#include "server/messages_content.h"

#include "chat/tools.h"
#include "server/request_fields.h"

namespace cachalot {
namespace {

ApiResult<std::string> required_string(const RequestFields& fields, std::string_view key) {
  CACHALOT_TRY(auto text, fields.string(key));
  if (!text) return refuse(fields.path(key), "missing; expected a string");
  return std::move(*text);
}

// Calls take(fields, type) for each block of a list.
template <class Take>
ApiStatus for_each_block(const Json& content, const std::string& where, Take take) {
  const Json::Array* blocks = content.array();
  if (!blocks)
    return refuse(where, "expected a string or an array of content blocks, found {}",
                  found(content));
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (!(*blocks)[i].object())
      return refuse(place, "expected a content block, found {}", found((*blocks)[i]));
    const RequestFields fields((*blocks)[i], place);
    CACHALOT_TRY(const std::string type, required_string(fields, "type"));
    CACHALOT_OK(take(fields, type));
  }
  return {};
}

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (!text.empty()) text += "\n\n";
  text += paragraph;
}

// {"type": "base64", "media_type", "data"} or {"type": "url", "url"}
ApiResult<ImageRecord> parse_image(const RequestFields& block) {
  CACHALOT_TRY(const Json* json, block.object("source"));
  if (!json) return refuse(block.path("source"), "missing; expected an object");
  const RequestFields source(*json, block.path("source"));
  CACHALOT_TRY(const std::string type, required_string(source, "type"));
  if (type == "url") {
    CACHALOT_TRY(std::string url, required_string(source, "url"));
    return ImageRecord{std::move(url), block.path("source")};
  }
  if (type == "base64") {
    CACHALOT_TRY(const std::string media_type, required_string(source, "media_type"));
    CACHALOT_TRY(const std::string data, required_string(source, "data"));
    return ImageRecord{fmt::format("data:{};base64,{}", media_type, data), block.path("source")};
  }
  return refuse(source.path("type"), "expected base64 or url, found {}", found(Json(type)));
}

// The text of a document whose source is plain text; other kinds cannot be read.
ApiResult<TextBlock> parse_document(const RequestFields& block) {
  CACHALOT_TRY(const Json* json, block.object("source"));
  if (!json) return refuse(block.path("source"), "missing; expected an object");
  const RequestFields source(*json, block.path("source"));
  CACHALOT_TRY(const std::string type, required_string(source, "type"));
  if (type != "text")
    return refuse(source.path("type"),
                  "only documents of plain text can be read; found {}, send its text instead",
                  found(Json(type)));
  CACHALOT_TRY(std::string text, required_string(source, "data"));
  return TextBlock{std::move(text)};
}

// The result of a tool may hold kinds of blocks that the model cannot see; their type stands in the
// prompt, as it does for tool messages of the other interfaces.
ApiResult<ToolResultBlock> parse_tool_result(const RequestFields& block) {
  ToolResultBlock result;
  CACHALOT_TRY(result.tool_call_id, required_string(block, "tool_use_id"));
  CACHALOT_TRY([[maybe_unused]] const auto is_error, block.boolean("is_error"));
  const Json* content = block.member("content");
  if (!content) return result;
  if (const std::string* text = content->string()) {
    result.parts.push_back(TextBlock{*text});
    return result;
  }
  const auto take = [&](const RequestFields& part, const std::string& type) -> ApiStatus {
    if (type == "text") {
      CACHALOT_TRY(std::string text, required_string(part, "text"));
      result.parts.push_back(TextBlock{std::move(text)});
    } else if (type == "image") {
      CACHALOT_TRY(ImageRecord image, parse_image(part));
      result.parts.push_back(std::move(image));
    } else {
      result.parts.push_back(UnsupportedBlock{type});
    }
    return {};
  };
  CACHALOT_OK(for_each_block(*content, block.path("content"), take));
  return result;
}

ApiStatus take_user_block(const RequestFields& block, const std::string& type, Message& message) {
  if (type == "text") {
    CACHALOT_TRY(std::string text, required_string(block, "text"));
    message.blocks.push_back(TextBlock{std::move(text)});
  } else if (type == "image") {
    CACHALOT_TRY(ImageRecord image, parse_image(block));
    message.blocks.push_back(std::move(image));
  } else if (type == "tool_result") {
    CACHALOT_TRY(ToolResultBlock result, parse_tool_result(block));
    message.blocks.push_back(std::move(result));
  } else if (type == "document") {
    CACHALOT_TRY(TextBlock text, parse_document(block));
    message.blocks.push_back(std::move(text));
  } else {
    return refuse(block.path("type"),
                  "a user turn holds text, image, document and tool_result blocks, found {}",
                  found(Json(type)));
  }
  return {};
}

ApiResult<ToolCall> parse_tool_use(const RequestFields& block) {
  ToolCall call;
  CACHALOT_TRY(call.id, required_string(block, "id"));
  CACHALOT_TRY(const std::string name, required_string(block, "name"));
  auto split = split_name(name);
  if (!split || split->name.empty())
    return refuse(block.path("name"), "expected a tool's name, found {}", found(Json(name)));
  call.name = std::move(split->name);
  call.name_space = std::move(split->name_space);
  CACHALOT_TRY(const Json* input, block.object("input"));
  if (!input) return refuse(block.path("input"), "missing; expected an object");
  call.arguments = *input;
  return call;
}

ApiStatus take_assistant_block(const RequestFields& block, const std::string& type,
                               Message& message, std::string& content) {
  if (type == "text") {
    CACHALOT_TRY(const std::string text, required_string(block, "text"));
    append_paragraph(content, text);
  } else if (type == "thinking") {
    CACHALOT_TRY(const std::string thinking, required_string(block, "thinking"));
    if (!thinking.empty()) append_paragraph(message.reasoning_content, thinking);
  } else if (type == "tool_use") {
    CACHALOT_TRY(ToolCall call, parse_tool_use(block));
    message.tool_calls.push_back(std::move(call));
  } else if (type != "redacted_thinking") {
    return refuse(block.path("type"),
                  "an assistant turn holds text, thinking, redacted_thinking and tool_use blocks, "
                  "found {}",
                  found(Json(type)));
  }
  return {};
}

ApiResult<Message> parse_user(const Json& content, const std::string& where) {
  Message message;
  message.role = Role::kUser;
  if (const std::string* text = content.string()) {
    message.blocks.push_back(TextBlock{*text});
    return message;
  }
  CACHALOT_OK(for_each_block(content, where, [&](const RequestFields& block, const auto& type) {
    return take_user_block(block, type, message);
  }));
  if (message.blocks.empty()) return refuse(where, "a user turn needs at least one content block");
  return message;
}

ApiResult<Message> parse_assistant(const Json& content, bool last, const std::string& where) {
  Message message;
  message.role = Role::kAssistant;
  std::string text;
  if (content.string()) {
    text = *content.string();
  } else {
    CACHALOT_OK(for_each_block(content, where, [&](const RequestFields& block, const auto& type) {
      return take_assistant_block(block, type, message, text);
    }));
  }
  if (!text.empty()) message.blocks.push_back(TextBlock{std::move(text)});
  if (last && message.tool_calls.empty()) message.prefix = message.without_end = true;
  if (!last && message.blocks.empty() && message.tool_calls.empty() &&
      message.reasoning_content.empty())
    return refuse(where, "an assistant turn needs text, thinking or a tool_use");
  return message;
}

}  // namespace

ApiResult<std::string> parse_messages_system(const Json& content, const std::string& where) {
  if (const std::string* text = content.string()) return *text;
  std::string joined;
  const auto take = [&](const RequestFields& block, const std::string& type) -> ApiStatus {
    if (type != "text")
      return refuse(block.path("type"), "a system prompt holds text blocks, found {}",
                    found(Json(type)));
    CACHALOT_TRY(const std::string text, required_string(block, "text"));
    append_paragraph(joined, text);
    return {};
  };
  CACHALOT_OK(for_each_block(content, where, take));
  return joined;
}

ApiResult<Message> parse_messages_turn(const Json& turn, bool last, const std::string& where) {
  if (!turn.object()) return refuse(where, "expected a message, found {}", found(turn));
  const RequestFields fields(turn, where);
  CACHALOT_TRY(const std::string role, required_string(fields, "role"));
  const Json* content = fields.member("content");
  if (!content)
    return refuse(fields.path("content"),
                  "missing; expected a string or an array of content blocks");
  if (role == "user") return parse_user(*content, fields.path("content"));
  if (role == "assistant") return parse_assistant(*content, last, fields.path("content"));
  if (role == "system") {
    Message message;
    message.role = Role::kSystem;
    CACHALOT_TRY(std::string text, parse_messages_system(*content, fields.path("content")));
    message.blocks.push_back(TextBlock{std::move(text)});
    return message;
  }
  return refuse(fields.path("role"), "expected user, assistant or system, found {}",
                found(Json(role)));
}

}  // namespace cachalot
