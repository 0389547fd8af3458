#include "server/conversation_check.h"

#include <algorithm>
#include <set>

#include "server/tool_checks.h"

namespace cachalot {
namespace {

const std::string& role_of(const Json& message) {
  static const std::string none;
  const Json* role = message.find("role");
  return role && role->string() ? *role->string() : none;
}

const Json::Array* calls_of(const Json& message) {
  const Json* calls = message.find("tool_calls");
  const Json::Array* array = calls ? calls->array() : nullptr;
  return array && !array->empty() ? array : nullptr;
}

bool is_empty_text(const Json* content) {
  if (!content || content->is_null()) return true;
  if (const std::string* text = content->string()) return text->empty();
  return content->array() && content->array()->empty();
}

ApiStatus check_blocks(const Json& message, const std::string& where) {
  const Json* content = message.find("content");
  if (!content || !content->array()) return {};
  static constexpr std::string_view kTypes[] = {"text", "image_url", "image", "tool_result",
                                                "refusal"};
  for (size_t i = 0; i < content->array()->size(); ++i) {
    const Json* type = (*content->array())[i].find("type");
    if (!type || !type->string()) continue;  // the parser says so
    if (std::ranges::find(kTypes, std::string_view(*type->string())) != std::end(kTypes)) continue;
    return refuse(fmt::format("{}.content[{}].type", where, i),
                  "expected text or image_url, found \"{}\"", *type->string());
  }
  return {};
}

ApiStatus check_call(const Json& call, const std::string& where) {
  const RequestFields fields(call, where);
  CACHALOT_TRY(const auto type, fields.string("type"));
  if (type && *type != "function")
    return refuse(where + ".type", "expected function, found \"{}\"", *type);
  CACHALOT_TRY(const Json* function, fields.object("function"));
  const Json* arguments = function ? function->find("arguments") : nullptr;
  if (arguments && !arguments->is_null() && !arguments->string() && !arguments->object())
    return refuse(where + ".function.arguments", "expected JSON as a string, found {}",
                  found(*arguments));
  return {};
}

// The calls of message `at` and the tool messages behind it. Returns how many those are.
ApiResult<size_t> check_calls(const Json::Array& messages, size_t at) {
  const std::string where = fmt::format("messages[{}].tool_calls", at);
  const Json::Array& calls = *calls_of(messages[at]);
  std::set<std::string> open;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json* id = calls[i].find("id");
    if (!id || !id->string() || id->string()->empty())
      return refuse(fmt::format("{}[{}].id", where, i), "expected a string, found {}",
                    id ? found(*id) : "nothing");
    if (!open.insert(*id->string()).second)
      return refuse(fmt::format("{}[{}].id", where, i), "\"{}\" is the id of another call",
                    *id->string());
    CACHALOT_OK(check_call(calls[i], fmt::format("{}[{}]", where, i)));
  }
  size_t answered = 0;
  for (size_t i = at + 1; i < messages.size() && role_of(messages[i]) == "tool"; ++i) {
    const Json* id = messages[i].find("tool_call_id");
    if (!id || !id->string())
      return refuse(fmt::format("messages[{}].tool_call_id", i), "expected a string, found {}",
                    id ? found(*id) : "nothing");
    if (open.erase(*id->string()) == 0)
      return refuse(fmt::format("messages[{}].tool_call_id", i),
                    "\"{}\" is no unanswered call of the assistant message before", *id->string());
    ++answered;
  }
  if (!open.empty())
    return refuse(where, "the call \"{}\" must be answered by a tool message right behind it",
                  *open.begin());
  return answered;
}

ApiStatus check_function(const RequestFields& function) {
  CACHALOT_TRY([[maybe_unused]] const auto description, function.string("description"));
  CACHALOT_TRY([[maybe_unused]] const auto strict, function.boolean("strict"));
  CACHALOT_TRY(const Json* parameters, function.object("parameters"));
  if (!parameters) return {};
  return check_tool_parameters(RequestFields(*parameters, function.path("parameters")));
}

ApiStatus check_last(const Json::Array& messages) {
  const std::string& last = role_of(messages.back());
  const std::string where = fmt::format("messages[{}]", messages.size() - 1);
  if (messages.size() == 1 && last == "system")
    return refuse(where, "expected a user's message after it");
  if (last == "latest_reminder") return refuse(where, "expected a user's message after it");
  return {};
}

}  // namespace

ApiStatus check_messages(const Json& messages) {
  if (!messages.array()) return refuse("messages", "expected an array, found {}", found(messages));
  const Json::Array& items = *messages.array();
  if (items.empty()) return refuse("messages", "expected at least one message");
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    if (!items[i].object()) return refuse(where, "expected an object, found {}", found(items[i]));
    CACHALOT_OK(check_blocks(items[i], where));
    CACHALOT_TRY([[maybe_unused]] const auto prefix_given,
                 RequestFields(items[i], where).boolean("prefix"));
    const std::string& role = role_of(items[i]);
    if (role == "tool")
      return refuse(where,
                    "a tool message must follow the assistant message whose call it answers");
    if (role != "assistant") continue;
    if (calls_of(items[i])) {
      CACHALOT_TRY(const size_t answers, check_calls(items, i));
      i += answers;
      continue;
    }
    const Json* calls = items[i].find("tool_calls");
    if (calls && !calls->is_null() && !calls->array())
      return refuse(where + ".tool_calls", "expected an array, found {}", found(*calls));
    const Json *reasoning = items[i].find("reasoning_content"), *content = items[i].find("content");
    const bool prefix = i + 1 == items.size();
    if (reasoning && !reasoning->is_null()) continue;
    if (!content)
      return refuse(where + ".content", "an assistant message needs content or tool_calls");
    if (content && content->is_null() && !prefix)
      return refuse(where + ".content", "an assistant message needs content or tool_calls");
  }
  return check_last(items);
}

ApiStatus check_tools(const Json& tools) {
  if (!tools.array()) return refuse("tools", "expected an array, found {}", found(tools));
  std::set<std::string> names;
  for (size_t i = 0; i < tools.array()->size(); ++i) {
    const Json& tool = (*tools.array())[i];
    const std::string where = fmt::format("tools[{}]", i);
    if (!tool.object()) return refuse(where, "expected an object, found {}", found(tool));
    const Json* type = tool.find("type");
    if (type && (!type->string() || *type->string() != "function"))
      return refuse(where + ".type", "expected function, found {}", found(*type));
    const Json* given = tool.find("function");
    if (given && !given->is_null() && !given->object())
      return refuse(where + ".function", "expected an object, found {}", found(*given));
    const Json* name = given ? given->find("name") : nullptr;
    if (!name || !name->string() || name->string()->empty())
      return refuse(where + ".function.name", "expected a string, found {}",
                    name ? found(*name) : "nothing");
    if (name->string()->find_first_of("\"\n") != std::string::npos)
      return refuse(where + ".function.name", "expected a name without quotes and line breaks");
    CACHALOT_OK(check_function(RequestFields(*given, where + ".function")));
    CACHALOT_TRY([[maybe_unused]] const auto strict, RequestFields(tool, where).boolean("strict"));
    const Json* space = tool.find("namespace");
    const std::string qualified = (space ? space->dump() : "") + *name->string();
    if (!names.insert(qualified).second)
      return refuse(where + ".function.name", "\"{}\" is the name of another tool",
                    *name->string());
  }
  return {};
}

void normalize_messages(Json& messages) {
  Json::Array& items = *messages.array();
  for (Json& message : items)
    if (role_of(message) == "developer") message.set("role", Json("system"));
  std::erase_if(items, [](const Json& message) {
    return role_of(message) == "system" && is_empty_text(message.find("content")) &&
           !message.find("tools") && !message.find("response_format");
  });
  if (items.empty() || role_of(items.back()) != "assistant" || calls_of(items.back())) return;
  const Json* prefix = items.back().find("prefix");
  // Anything else is refused later.
  if (!prefix || prefix->is_null() || prefix->boolean()) items.back().set("prefix", Json(true));
}

}  // namespace cachalot
