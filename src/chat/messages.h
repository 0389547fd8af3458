// A conversation as the prompt encoder takes it, and the parser of its JSON form:
//   {"messages": [...]} | {"prefix": ..., "suffix": ...} (fill in the middle) | {"prompt": ...}
//   (raw)
// with the optional keys tools, response_format (a bare schema), tool_choice, thinking, effort or
// reasoning_effort, drop_thinking, bos. If several forms are present the first of the above counts;
// unknown keys are ignored. null means absent everywhere.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chat/json_value.h"

namespace cachalot {

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

// A picture of a message. `location` is a URL or a data URL; `where` names its place in the
// request.
struct ImageRecord {
  std::string location;
  std::string where;
};

struct TextBlock {
  std::string text;
};
struct UnsupportedBlock {
  std::string type;
};
// Content of a tool message, or a tool_result block inside a user message.
struct ToolResultBlock {
  std::string tool_call_id;
  std::vector<std::variant<TextBlock, ImageRecord, UnsupportedBlock>> parts;
};
using ContentBlock = std::variant<TextBlock, ImageRecord, UnsupportedBlock, ToolResultBlock>;

struct ToolCall {
  std::string id;          // may be empty
  std::string name;        // without the namespace
  std::string name_space;  // empty: none
  Json arguments;          // always an object
  std::string qualified() const { return name_space.empty() ? name : name_space + "::" + name; }
};

struct Tool {
  std::string qualified_name;  // with its namespace
  std::string name;            // without
  Json function;               // as rendered
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentBlock>
      blocks;                     // user, tool (one ToolResultBlock); other roles: at most one text
  std::string reasoning_content;  // assistant
  std::vector<ToolCall> tool_calls;     // assistant
  std::vector<Tool> tools;              // system
  std::optional<Json> response_format;  // system: a schema
  std::string task;                     // action, query, ...; empty: none
  bool without_end = false;             // assistant: no EOS after it (wo_eos, prefix)
  bool prefix = false;                  // assistant, last: the answer goes on from here
};

struct ToolChoice {
  enum Kind { kAuto, kNone, kRequired } kind = kAuto;
  std::string name;  // kRequired: only this tool, if not empty
};

struct ChatOptions {
  bool thinking = true;
  int effort = 75;            // 1..100
  bool drop_thinking = true;  // leave out the reasoning of earlier turns; tools turn it off
  bool bos = true;            // begin-of-sentence token, switchable for FIM and raw prompts
  ToolChoice tool_choice;
};

struct Chat {
  std::vector<Message> messages;  // never empty
};
struct FillInMiddle {
  std::string prefix, suffix;
};
struct RawPrompt {
  std::string text;
};

struct Conversation {
  std::variant<Chat, FillInMiddle, RawPrompt> input;
  ChatOptions options;
};

// The encoder knows low, high, xhigh, max and 1..100. Front ends also map the public interface's
// minimal (low), medium (high), ultra (max) and none (thinking off, unless `thinking` is given).
enum class EffortNames { kEncoder, kPublic };

// What an effort may be, for messages and help: "low, high, xhigh, max or 1 to 100".
std::string effort_choices(EffortNames names);

Result<Conversation> parse_conversation(const Json& request,
                                        EffortNames names = EffortNames::kEncoder);

// Applies an effort name or number to `options`; `thinking_given` keeps "none" from turning
// thinking off.
Status set_effort(ChatOptions& options, const Json& effort, EffortNames names,
                  bool thinking_given = false);

// A tools list as in a request; `where` names it in errors.
Result<std::vector<Tool>> parse_tools(const Json& tools, std::string_view where);

// Gives tools and a response format to the first system message, an empty new one at the front if
// there is none. Fails if that message has its own.
Status attach_to_system(Chat& chat, std::vector<Tool> tools, std::optional<Json> response_format);

}  // namespace cachalot
