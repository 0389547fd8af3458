#include "chat/messages.h"

#include <algorithm>
#include <array>

#include "chat/content.h"
#include "chat/tools.h"

namespace cachalot {
namespace {

constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority",
                                                    "domain", "title", "read_url"};

const Json* present(const Json& holder, std::string_view key) {
  const Json* member = holder.find(key);
  return member && !member->is_null() ? member : nullptr;
}

Result<std::string> string_or_empty(const Json& holder, std::string_view key) {
  const Json* member = present(holder, key);
  if (!member) return std::string();
  if (!member->string()) return fail("{}: expected a string, found {}", key, member->kind_name());
  return *member->string();
}

Result<bool> boolean_or(const Json& holder, std::string_view key, bool otherwise) {
  const Json* member = present(holder, key);
  if (!member) return otherwise;
  if (!member->boolean()) {
    return fail("{}: expected true or false, found {}", key, member->kind_name());
  }
  return *member->boolean();
}

Result<std::optional<Json>> parse_response_format(const Json& holder) {
  const Json* schema = present(holder, "response_format");
  if (!schema) return std::optional<Json>();
  if (!schema->object()) {
    return fail("response_format: expected a schema object, found {}", schema->kind_name());
  }
  // An empty schema asks for nothing and prints nothing.
  if (schema->object()->empty()) return std::optional<Json>();
  return std::optional<Json>(*schema);
}

Result<Role> parse_role(const Json& message) {
  const Json* role = message.find("role");
  if (!role || !role->string()) {
    return fail("role: expected a string, found {}", role ? role->kind_name() : "nothing");
  }
  constexpr std::array<std::string_view, 5> kNames = {"system", "user", "assistant", "tool",
                                                      "latest_reminder"};
  const auto at = std::find(kNames.begin(), kNames.end(), *role->string());
  if (at == kNames.end()) {
    return fail("role: unknown role '{}'; use system, user, assistant, tool or latest_reminder",
                *role->string());
  }
  return static_cast<Role>(at - kNames.begin());
}

Status parse_content(const Json& json, Message& message) {
  const Json* content = json.find("content");
  if (message.role == Role::kAssistant && (!content || content->is_null())) return {};
  if (!content) return fail("content: missing; expected a string or an array of blocks");
  if (message.role == Role::kUser) {
    CACHALOT_TRY(message.blocks, parse_user_content(*content, "content"));
  } else if (message.role == Role::kTool) {
    CACHALOT_TRY(std::string id, string_or_empty(json, "tool_call_id"));
    CACHALOT_TRY(ToolResultBlock result, parse_tool_content(*content, std::move(id), "content"));
    message.blocks.push_back(std::move(result));
  } else {
    CACHALOT_TRY(std::string text, parse_text_content(*content, "content"));
    message.blocks.push_back(TextBlock{std::move(text)});
  }
  return {};
}

Status parse_assistant(const Json& json, Message& message, bool last) {
  CACHALOT_TRY(message.reasoning_content, string_or_empty(json, "reasoning_content"));
  CACHALOT_TRY(message.prefix, boolean_or(json, "prefix", false));
  CACHALOT_TRY(message.without_end, boolean_or(json, "wo_eos", false));
  if (message.prefix && !last) return fail("prefix: only the last message can be a prefix");
  message.without_end = message.without_end || message.prefix;
  const Json* calls = present(json, "tool_calls");
  if (!calls) return {};
  if (!calls->array()) {
    return fail("tool_calls: expected an array, found {}", calls->kind_name());
  }
  if (message.prefix && !calls->array()->empty()) {
    return fail("tool_calls: a prefix message cannot have calls");
  }
  for (size_t i = 0; i < calls->array()->size(); ++i) {
    auto call = parse_tool_call((*calls->array())[i]);
    if (!call) return fail(call.error().in(fmt::format("tool_calls[{}]", i)));
    message.tool_calls.push_back(std::move(*call));
  }
  return {};
}

// Keys that only some roles may carry; silently ignoring one would lose what the caller asked for.
Status check_keys(const Json& json, Role role) {
  const auto refuse = [&](std::string_view key, const char* owner) -> Status {
    const Json* member = present(json, key);
    if (!member || (member->array() && member->array()->empty()) ||
        (member->object() && member->object()->empty()) ||
        (member->boolean() && !*member->boolean())) {
      return {};
    }
    return fail("{}: only {} can have it", key, owner);
  };
  if (role != Role::kSystem) {
    CACHALOT_OK(refuse("tools", "a system message"));
    CACHALOT_OK(refuse("response_format", "a system message"));
  }
  if (role != Role::kAssistant) {
    CACHALOT_OK(refuse("tool_calls", "an assistant message"));
    CACHALOT_OK(refuse("prefix", "an assistant message"));
  }
  return {};
}

Result<Message> parse_message(const Json& json, bool last) {
  if (!json.object()) return fail("expected an object, found {}", json.kind_name());
  Message message;
  CACHALOT_TRY(message.role, parse_role(json));
  CACHALOT_OK(check_keys(json, message.role));
  CACHALOT_OK(parse_content(json, message));
  CACHALOT_TRY(message.task, string_or_empty(json, "task"));
  if (!message.task.empty()) {
    if (std::find(kTasks.begin(), kTasks.end(), message.task) == kTasks.end()) {
      return fail("task: unknown task '{}'; use {}", message.task, fmt::join(kTasks, ", "));
    }
    if (message.role == Role::kTool) return fail("task: a tool message cannot have a task");
  }
  if (message.role == Role::kAssistant) CACHALOT_OK(parse_assistant(json, message, last));
  if (message.role == Role::kSystem) {
    if (const Json* tools = json.find("tools")) {
      CACHALOT_TRY(message.tools, parse_tools(*tools, "tools"));
    }
    CACHALOT_TRY(message.response_format, parse_response_format(json));
  }
  return message;
}

Result<Chat> parse_chat(const Json& request, const Json& messages) {
  if (!messages.array()) {
    return fail("messages: expected an array, found {}", messages.kind_name());
  }
  const Json::Array& items = *messages.array();
  if (items.empty()) return fail("messages: expected at least one message");
  Chat chat;
  for (size_t i = 0; i < items.size(); ++i) {
    auto message = parse_message(items[i], i + 1 == items.size());
    if (!message) {
      // "messages[2].role: ..." for a field, "messages[2]: ..." for the message itself.
      const char* joint = items[i].object() ? "." : ": ";
      return fail("messages[{}]{}{}", i, joint, message.error().message);
    }
    for (ContentBlock& block : message->blocks) {
      const auto locate = [&](ImageRecord& image) {
        image.where = fmt::format("messages[{}].{}", i, image.where);
      };
      if (auto* image = std::get_if<ImageRecord>(&block)) locate(*image);
      if (auto* result = std::get_if<ToolResultBlock>(&block)) {
        for (auto& part : result->parts) {
          if (auto* image = std::get_if<ImageRecord>(&part)) locate(*image);
        }
      }
    }
    chat.messages.push_back(std::move(*message));
  }
  std::vector<Tool> tools;
  if (const Json* given = request.find("tools")) {
    CACHALOT_TRY(tools, parse_tools(*given, "tools"));
  }
  CACHALOT_TRY(auto response_format, parse_response_format(request));
  CACHALOT_OK(attach_to_system(chat, std::move(tools), std::move(response_format)));
  return chat;
}

Result<ToolChoice> parse_tool_choice(const Json& choice) {
  if (const std::string* name = choice.string()) {
    if (*name == "auto") return ToolChoice{};
    if (*name == "none") return ToolChoice{.kind = ToolChoice::kNone, .name = {}};
    if (*name == "required") return ToolChoice{.kind = ToolChoice::kRequired, .name = {}};
  }
  const Json* function = choice.find("function");
  const Json* name = function ? function->find("name") : nullptr;
  if (!name || !name->string() || name->string()->empty()) {
    return fail(
        "tool_choice: expected \"auto\", \"none\", \"required\" or "
        "{{\"type\": \"function\", \"function\": {{\"name\": ...}}}}");
  }
  return ToolChoice{.kind = ToolChoice::kRequired, .name = *name->string()};
}

// From the least to the most.
struct Effort {
  std::string_view name;
  int budget;  // 0: no thinking at all
  bool is_public;
};
constexpr std::array<Effort, 8> kEfforts = {{{"none", 0, true},
                                             {"minimal", 50, true},
                                             {"low", 50, false},
                                             {"medium", 75, true},
                                             {"high", 75, false},
                                             {"xhigh", 75, false},
                                             {"max", 100, false},
                                             {"ultra", 100, true}}};

bool is_known(const Effort& effort, EffortNames names) {
  return names == EffortNames::kPublic || !effort.is_public;
}

Result<ChatOptions> parse_options(const Json& request, EffortNames names) {
  ChatOptions options;
  CACHALOT_TRY(options.thinking, boolean_or(request, "thinking", true));
  CACHALOT_TRY(options.drop_thinking, boolean_or(request, "drop_thinking", true));
  CACHALOT_TRY(options.bos, boolean_or(request, "bos", true));
  const Json* effort = present(request, "effort");
  const Json* reasoning_effort = present(request, "reasoning_effort");
  if (effort && reasoning_effort && effort->dump() != reasoning_effort->dump()) {
    return fail("effort and reasoning_effort disagree; give one of them");
  }
  if (!effort) effort = reasoning_effort;
  if (effort) {
    const bool thinking_given = present(request, "thinking") != nullptr;
    if (const Status status = set_effort(options, *effort, names, thinking_given); !status) {
      return fail(status.error().in("reasoning_effort"));
    }
  }
  if (const Json* choice = present(request, "tool_choice")) {
    CACHALOT_TRY(options.tool_choice, parse_tool_choice(*choice));
  }
  return options;
}

}  // namespace

std::string effort_choices(EffortNames names) {
  std::string text;
  for (const Effort& effort : kEfforts) {
    if (is_known(effort, names)) text += fmt::format("{}{}", text.empty() ? "" : ", ", effort.name);
  }
  return text + " or 1 to 100";
}

Status set_effort(ChatOptions& options, const Json& effort, EffortNames names,
                  bool thinking_given) {
  if (const auto number = effort.int64(); number && *number >= 1 && *number <= 100) {
    options.effort = static_cast<int>(*number);
    return {};
  }
  if (const std::string* text = effort.string()) {
    for (const Effort& known : kEfforts) {
      if (*text != known.name || !is_known(known, names)) continue;
      if (known.budget > 0) {
        options.effort = known.budget;
      } else if (!thinking_given) {
        options.thinking = false;
      }
      return {};
    }
  }
  return fail("expected {}, found {}", effort_choices(names), effort.dump());
}

Status attach_to_system(Chat& chat, std::vector<Tool> tools, std::optional<Json> response_format) {
  if (tools.empty() && !response_format) return {};
  auto system = std::find_if(chat.messages.begin(), chat.messages.end(),
                             [](const Message& m) { return m.role == Role::kSystem; });
  if (system == chat.messages.end()) {
    system = chat.messages.insert(chat.messages.begin(), Message());
    system->role = Role::kSystem;
  }
  if (!tools.empty()) {
    if (!system->tools.empty()) return fail("tools: the first system message has its own tools");
    system->tools = std::move(tools);
  }
  if (response_format) {
    if (system->response_format) {
      return fail("response_format: the first system message has its own response_format");
    }
    system->response_format = std::move(response_format);
  }
  return {};
}

Result<Conversation> parse_conversation(const Json& request, EffortNames names) {
  if (!request.object()) return fail("expected an object, found {}", request.kind_name());
  Conversation conversation;
  CACHALOT_TRY(conversation.options, parse_options(request, names));
  if (const Json* messages = present(request, "messages")) {
    CACHALOT_TRY(Chat chat, parse_chat(request, *messages));
    conversation.input = std::move(chat);
  } else if (present(request, "prefix") || present(request, "suffix")) {
    CACHALOT_TRY(std::string prefix, string_or_empty(request, "prefix"));
    CACHALOT_TRY(std::string suffix, string_or_empty(request, "suffix"));
    // Without a suffix there is no hole to fill: the prefix is simply continued.
    if (present(request, "suffix")) {
      conversation.input = FillInMiddle{std::move(prefix), std::move(suffix)};
    } else {
      conversation.input = RawPrompt{std::move(prefix)};
    }
  } else if (present(request, "prompt")) {
    CACHALOT_TRY(std::string prompt, string_or_empty(request, "prompt"));
    conversation.input = RawPrompt{std::move(prompt)};
  } else {
    return fail("expected one of the keys messages, prefix or suffix, prompt");
  }
  return conversation;
}

}  // namespace cachalot
