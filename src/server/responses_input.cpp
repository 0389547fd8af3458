#include "server/responses_input.h"

#include <array>

#include "chat/tools.h"
#include "server/request_fields.h"
#include "server/responses_tools.h"
#include "server/tool_checks.h"

namespace cachalot {
namespace {

constexpr std::string_view kPacked = "plain:";

ApiResult<std::string> required_string(const RequestFields& fields, std::string_view key) {
  CACHALOT_TRY(auto text, fields.string(key));
  if (!text) return refuse(fields.path(key), "missing; expected a string");
  return std::move(*text);
}

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (!text.empty()) text += "\n\n";
  text += paragraph;
}

// Calls take(part, type) for each part of a content or output.
template <class Take>
ApiStatus for_each_part(const RequestFields& holder, std::string_view key, const Json& list,
                        Take take) {
  const Json::Array* parts = list.array();
  if (!parts)
    return refuse(holder.path(key), "expected a string or an array of parts, found {}",
                  found(list));
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string where = fmt::format("{}[{}]", holder.path(key), i);
    if (!(*parts)[i].object())
      return refuse(where, "expected a part of a content, found {}", found((*parts)[i]));
    const RequestFields part((*parts)[i], where);
    CACHALOT_TRY(const std::string type, required_string(part, "type"));
    CACHALOT_OK(take(part, type));
  }
  return {};
}

// A text or image part of what the model is shown.
template <class Blocks>
ApiStatus take_input_part(const RequestFields& part, const std::string& type, Blocks& blocks) {
  if (type == "input_text" || type == "text" || type == "output_text") {
    CACHALOT_TRY(std::string text, required_string(part, "text"));
    blocks.push_back(TextBlock{std::move(text)});
    return {};
  }
  if (type != "input_image")
    return refuse(part.path("type"), "expected input_text or input_image, found {}",
                  found(Json(type)));
  CACHALOT_TRY(const auto url, part.string("image_url"));
  if (!url || url->empty())
    return refuse(part.path("image_url"),
                  "expected a URL or a data URL: this server stores no files");
  blocks.push_back(ImageRecord{*url, part.path("image_url")});
  return {};
}

ApiResult<std::string> parse_text_parts(const RequestFields& holder, std::string_view key,
                                        const Json& content) {
  if (const std::string* text = content.string()) return *text;
  std::string joined;
  const auto take = [&](const RequestFields& part, const std::string& type) -> ApiStatus {
    const bool refusal = type == "refusal";
    if (!refusal && type != "input_text" && type != "output_text" && type != "text")
      return refuse(part.path("type"), "expected text, found {}", found(Json(type)));
    CACHALOT_TRY(const std::string text, required_string(part, refusal ? "refusal" : "text"));
    append_paragraph(joined, text);
    return {};
  };
  CACHALOT_OK(for_each_part(holder, key, content, take));
  return joined;
}

class InputReader {
 public:
  ApiStatus take(const RequestFields& item) {
    CACHALOT_TRY(const auto type, item.string("type"));
    if (!type || *type == "message") return take_message(item);
    if (*type == "reasoning") return take_reasoning(item);
    if (*type == "function_call" || *type == "custom_tool_call") return take_call(item, *type);
    if (*type == "function_call_output" || *type == "custom_tool_call_output")
      return take_output(item);
    if (*type == "item_reference")
      return refuse(item.path("type"), "this server stores no items; send the item itself");
    return refuse(item.path("type"),
                  "expected message, reasoning, function_call, function_call_output, "
                  "custom_tool_call or custom_tool_call_output, found {}",
                  found(Json(*type)));
  }

  std::vector<Message> finish() {
    end_assistant();
    return std::move(messages_);
  }

 private:
  std::vector<Message> messages_;
  std::optional<Message> assistant_;  // the turn that the last items belong to
  std::string content_;               // of it

  Message& assistant() {
    if (!assistant_) {
      assistant_.emplace();
      assistant_->role = Role::kAssistant;
    }
    return *assistant_;
  }

  void end_assistant() {
    if (!assistant_) return;
    if (!content_.empty()) assistant_->blocks.push_back(TextBlock{std::move(content_)});
    content_.clear();
    messages_.push_back(std::move(*assistant_));
    assistant_.reset();
  }

  ApiStatus take_message(const RequestFields& item) {
    CACHALOT_TRY(const std::string role, required_string(item, "role"));
    const Json* content = item.member("content");
    if (!content)
      return refuse(item.path("content"), "missing; expected a string or an array of parts");
    if (role == "assistant") {
      CACHALOT_TRY(const std::string text, parse_text_parts(item, "content", *content));
      if (assistant_ && !content_.empty() && assistant_->tool_calls.empty()) end_assistant();
      assistant();
      append_paragraph(content_, text);
      return {};
    }
    Message message;
    if (role == "user") {
      message.role = Role::kUser;
      CACHALOT_OK(take_user_content(item, *content, message));
    } else if (role == "system" || role == "developer") {
      message.role = Role::kSystem;
      CACHALOT_TRY(std::string text, parse_text_parts(item, "content", *content));
      if (text.empty()) return {};
      message.blocks.push_back(TextBlock{std::move(text)});
    } else {
      return refuse(item.path("role"), "expected user, assistant, system or developer, found {}",
                    found(Json(role)));
    }
    end_assistant();
    messages_.push_back(std::move(message));
    return {};
  }

  static ApiStatus take_user_content(const RequestFields& item, const Json& content,
                                     Message& message) {
    if (const std::string* text = content.string()) {
      message.blocks.push_back(TextBlock{*text});
      return {};
    }
    CACHALOT_OK(for_each_part(item, "content", content, [&](const auto& part, const auto& type) {
      return take_input_part(part, type, message.blocks);
    }));
    if (message.blocks.empty()) return refuse(item.path("content"), "expected at least one part");
    return {};
  }

  // Its text; if a client has left that out, the packed form of it; else the summary.
  ApiStatus take_reasoning(const RequestFields& item) {
    std::string text;
    if (const Json* content = item.member("content"))
      CACHALOT_OK(append_reasoning(item, "content", *content, "reasoning_text", text));
    if (text.empty()) {
      CACHALOT_TRY(const auto packed, item.string("encrypted_content"));
      text = unpack_reasoning(packed.value_or(""));
    }
    if (text.empty()) {
      if (const Json* summary = item.member("summary"))
        CACHALOT_OK(append_reasoning(item, "summary", *summary, "summary_text", text));
    }
    if (assistant_ && !content_.empty() && assistant_->tool_calls.empty()) end_assistant();
    append_paragraph(assistant().reasoning_content, text);
    return {};
  }

  static ApiStatus append_reasoning(const RequestFields& item, std::string_view key,
                                    const Json& list, std::string_view wanted, std::string& text) {
    const auto take = [&](const RequestFields& part, const std::string& type) -> ApiStatus {
      if (type != wanted && type != "text")
        return refuse(part.path("type"), "expected {}, found {}", wanted, found(Json(type)));
      CACHALOT_TRY(const std::string more, required_string(part, "text"));
      append_paragraph(text, more);
      return {};
    };
    return for_each_part(item, key, list, take);
  }

  ApiStatus take_call(const RequestFields& item, const std::string& type) {
    CACHALOT_TRY(const std::string name, qualified_tool_name(item));
    CACHALOT_TRY(const QualifiedName split, split_name(name));
    ToolCall call{.id = {}, .name = split.name, .name_space = split.name_space, .arguments = {}};
    CACHALOT_TRY(call.id, required_string(item, "call_id"));
    if (type == "custom_tool_call") {
      CACHALOT_TRY(std::string input, required_string(item, "input"));
      call.arguments = Json(Json::Object{{"input", Json(std::move(input))}});
    } else {
      CACHALOT_TRY(std::string arguments, required_string(item, "arguments"));
      // As for the other interfaces: what is no object becomes {"arguments": original}.
      const Json function(
          Json::Object{{"name", Json(call.name)}, {"arguments", Json(std::move(arguments))}});
      CACHALOT_TRY(ToolCall parsed, parse_tool_call(Json(Json::Object{{"function", function}})));
      call.arguments = std::move(parsed.arguments);
    }
    assistant().tool_calls.push_back(std::move(call));
    return {};
  }

  ApiStatus take_output(const RequestFields& item) {
    ToolResultBlock result;
    CACHALOT_TRY(result.tool_call_id, required_string(item, "call_id"));
    const Json* output = item.member("output");
    if (!output)
      return refuse(item.path("output"), "missing; expected a string or an array of parts");
    if (const std::string* text = output->string()) {
      result.parts.push_back(TextBlock{*text});
    } else {
      CACHALOT_OK(for_each_part(item, "output", *output, [&](const auto& part, const auto& type) {
        return take_input_part(part, type, result.parts);
      }));
    }
    end_assistant();
    Message message;
    message.role = Role::kTool;
    message.blocks.push_back(std::move(result));
    messages_.push_back(std::move(message));
    return {};
  }
};

}  // namespace

std::string pack_reasoning(std::string_view text) { return std::string(kPacked).append(text); }

std::string unpack_reasoning(std::string_view packed) {
  return packed.starts_with(kPacked) ? std::string(packed.substr(kPacked.size())) : std::string();
}

ApiResult<std::vector<Message>> parse_responses_input(const Json& input) {
  if (const std::string* text = input.string()) {
    Message message;
    message.blocks.push_back(TextBlock{*text});
    return std::vector<Message>{std::move(message)};
  }
  const Json::Array* items = input.array();
  if (!items || items->empty())
    return refuse("input", "expected a string or an array with at least one item, found {}",
                  items ? "an empty one" : found(input));
  InputReader reader;
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string where = fmt::format("input[{}]", i);
    const Json& item = (*items)[i];
    if (!item.object()) return refuse(where, "expected an item, found {}", found(item));
    CACHALOT_OK(reader.take(RequestFields(item, where)));
  }
  std::vector<Message> messages = reader.finish();
  CACHALOT_OK(check_tool_results(messages, "input"));
  if (messages.empty()) return refuse("input", "there is nothing to answer in it");
  return messages;
}

}  // namespace cachalot
