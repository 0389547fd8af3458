#include "server/messages_request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "server/messages_content.h"
#include "server/request_fields.h"
#include "server/tool_checks.h"

namespace cachalot {
namespace {

constexpr size_t kStopSequences = 16;
constexpr int64_t kManyTokens = std::numeric_limits<int32_t>::max();

ApiResult<std::string> parse_model(const RequestFields& fields, const ServiceDefaults& defaults) {
  const auto& names = defaults.model_names;
  CACHALOT_TRY(const auto model, fields.string("model"));
  if (!model || model->empty()) return names.front();
  const auto answers = [&](const std::string& name) { return name == *model || name == "*"; };
  if (model->starts_with("claude") || std::any_of(names.begin(), names.end(), answers))
    return *model;
  return fail(ApiError(400,
                       fmt::format("model: there is no model {}; use {} or a name that begins with "
                                   "claude",
                                   found(Json(*model)), names.front()),
                       "model", "model_not_found"));
}

ApiResult<Tool> parse_tool(const Json& json, const std::string& where) {
  if (!json.object()) return refuse(where, "expected a tool, found {}", found(json));
  const RequestFields fields(json, where);
  CACHALOT_TRY(const auto type, fields.string("type"));
  if (type && *type != "custom")
    return refuse(fields.path("type"),
                  "only tools with an input_schema are offered (type custom or none), found {}",
                  found(Json(*type)));
  CACHALOT_TRY(const auto name, fields.string("name"));
  CACHALOT_OK(check_tool_name(name.value_or(""), fields.path("name")));
  CACHALOT_TRY(const Json* schema, fields.object("input_schema"));
  if (!schema) return refuse(fields.path("input_schema"), "missing; expected a JSON schema");
  CACHALOT_OK(check_tool_parameters(RequestFields(*schema, fields.path("input_schema"))));
  CACHALOT_TRY(const auto description, fields.string("description"));
  CACHALOT_TRY(const auto strict, fields.boolean("strict"));
  Json function(Json::Object{{"name", Json(*name)}});
  if (description) function.set("description", Json(*description));
  function.set("parameters", *schema);
  if (strict && *strict) function.set("strict", Json(true));
  const Json wrapped(Json::Object{{"function", std::move(function)}});
  auto tools = parse_tools(Json(Json::Array{wrapped}), where);
  if (!tools) return refuse(fields.path("name"), "{} is no name of a tool", found(Json(*name)));
  return std::move(tools->front());
}

ApiResult<std::vector<Tool>> parse_tool_list(const RequestFields& fields) {
  std::vector<Tool> tools;
  CACHALOT_TRY(const Json* list, fields.array("tools"));
  if (!list) return tools;
  for (size_t i = 0; i < list->array()->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    CACHALOT_TRY(Tool tool, parse_tool((*list->array())[i], where));
    for (const Tool& other : tools) {
      if (other.qualified_name == tool.qualified_name)
        return refuse(where + ".name", "another tool has the name '{}', too", tool.qualified_name);
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

ApiStatus parse_tool_choice(const RequestFields& fields, const std::vector<Tool>& tools,
                            ChatRequest& chat) {
  CACHALOT_TRY(const Json* json, fields.object("tool_choice"));
  if (!json) return {};
  const RequestFields choice(*json, "tool_choice");
  CACHALOT_TRY(const auto type, choice.string("type"));
  constexpr std::array<std::string_view, 4> kTypes = {"auto", "any", "tool", "none"};
  if (!type || std::find(kTypes.begin(), kTypes.end(), *type) == kTypes.end())
    return refuse("tool_choice.type", "expected auto, any, tool or none, found {}",
                  type ? found(Json(*type)) : "nothing");
  CACHALOT_TRY(const auto single, choice.boolean("disable_parallel_tool_use"));
  chat.parallel_tool_calls = !single.value_or(false);
  ToolChoice& wanted = chat.conversation.options.tool_choice;
  if (*type == "none") wanted.kind = ToolChoice::kNone;
  if (*type == "auto" || *type == "none") return {};
  wanted.kind = ToolChoice::kRequired;
  if (tools.empty()) return refuse("tool_choice", "{} needs tools, and there are none", *type);
  if (*type == "any") return {};
  CACHALOT_TRY(const auto name, choice.string("name"));
  if (!name) return refuse("tool_choice.name", "missing; expected the name of a tool");
  if (std::none_of(tools.begin(), tools.end(),
                   [&](const Tool& tool) { return tool.qualified_name == *name; }))
    return refuse("tool_choice.name", "there is no tool {}", found(Json(*name)));
  wanted.name = *name;
  return {};
}

ApiStatus parse_thinking(const RequestFields& fields, const Json* output_config,
                         ChatOptions& options) {
  CACHALOT_TRY(const Json* json, fields.object("thinking"));
  if (json) {
    const RequestFields thinking(*json, "thinking");
    CACHALOT_TRY(const auto type, thinking.string("type"));
    if (!type || (*type != "enabled" && *type != "disabled" && *type != "adaptive"))
      return refuse("thinking.type", "expected enabled, disabled or adaptive, found {}",
                    type ? found(Json(*type)) : "nothing");
    options.thinking = *type != "disabled";
    CACHALOT_TRY([[maybe_unused]] const auto budget,
                 thinking.integer("budget_tokens", 1, kManyTokens));
  }
  if (!output_config) return {};
  const Json* effort = RequestFields(*output_config).member("effort");
  if (!effort) return {};
  if (!set_effort(options, *effort, EffortNames::kPublic, json != nullptr))
    return refuse("output_config.effort", "expected {}, found {}",
                  effort_choices(EffortNames::kPublic), found(*effort));
  return {};
}

// output_config.format, or output_format as it was called before.
ApiStatus parse_output_format(const RequestFields& fields, const Json* output_config,
                              ChatRequest& chat) {
  std::string where = "output_format";
  CACHALOT_TRY(const Json* json, fields.object("output_format"));
  if (output_config) {
    const RequestFields config(*output_config, "output_config");
    CACHALOT_TRY(const Json* format, config.object("format"));
    if (format && json) return refuse(where, "give it or output_config.format, not both");
    if (format) {
      json = format;
      where = config.path("format");
    }
  }
  if (!json) return {};
  const RequestFields format(*json, where);
  CACHALOT_TRY(const auto type, format.string("type"));
  if (!type || *type != "json_schema")
    return refuse(format.path("type"), "expected json_schema, found {}",
                  type ? found(Json(*type)) : "nothing");
  CACHALOT_TRY(const Json* schema, format.object("schema"));
  if (!schema) return refuse(format.path("schema"), "missing; expected a JSON schema");
  chat.constraint.kind = Constraint::kJsonSchema;
  chat.constraint.schema = *schema;
  chat.constraint_field = format.path("schema");
  return {};
}

ApiStatus parse_stops(const RequestFields& fields, std::vector<std::string>& stops) {
  CACHALOT_TRY(const auto given, fields.strings("stop_sequences", kStopSequences));
  if (!given) return {};
  for (size_t i = 0; i < given->size(); ++i) {
    if ((*given)[i].empty())
      return refuse(fmt::format("stop_sequences[{}]", i), "expected a non-empty string");
  }
  stops = *given;
  return {};
}

ApiStatus parse_sampling(const RequestFields& fields, MessagesUse use, ChatRequest& chat) {
  CACHALOT_TRY(const auto max_tokens, fields.integer("max_tokens", 1, kManyTokens));
  if (!max_tokens && use == MessagesUse::answer)
    return refuse("max_tokens", "missing; expected the most tokens the answer may have");
  if (max_tokens) chat.max_tokens = *max_tokens;
  CACHALOT_TRY(const auto temperature, fields.number("temperature", 0, 2));
  if (temperature) chat.sampling.temperature = *temperature;
  CACHALOT_TRY(const auto top_p, fields.number("top_p", 0, 1));
  if (top_p) chat.sampling.top_p = *top_p;
  return parse_stops(fields, chat.stops);
}

ApiResult<Chat> parse_turns(const RequestFields& fields) {
  Chat chat;
  if (const Json* system = fields.member("system")) {
    CACHALOT_TRY(std::string text, parse_messages_system(*system, "system"));
    if (!text.empty()) {
      Message message;
      message.role = Role::kSystem;
      message.blocks.push_back(TextBlock{std::move(text)});
      chat.messages.push_back(std::move(message));
    }
  }
  CACHALOT_TRY(const Json* messages, fields.array("messages"));
  if (!messages || messages->array()->empty())
    return refuse("messages", "expected an array with at least one message");
  const Json::Array& turns = *messages->array();
  for (size_t i = 0; i < turns.size(); ++i) {
    CACHALOT_TRY(Message message, parse_messages_turn(turns[i], i + 1 == turns.size(),
                                                      fmt::format("messages[{}]", i)));
    chat.messages.push_back(std::move(message));
  }
  CACHALOT_OK(check_tool_results(chat.messages, "messages"));
  return chat;
}

}  // namespace

ApiResult<MessagesRequest> parse_messages_request(const Json& body, ChatRequest fresh,
                                                  const ServiceDefaults& defaults,
                                                  MessagesUse use) {
  const RequestFields fields(body);
  MessagesRequest request{std::move(fresh)};
  ChatRequest& chat = request.chat;
  CACHALOT_TRY(request.model, parse_model(fields, defaults));
  CACHALOT_TRY(Chat turns, parse_turns(fields));
  CACHALOT_TRY(std::vector<Tool> tools, parse_tool_list(fields));
  CACHALOT_OK(parse_tool_choice(fields, tools, chat));
  CACHALOT_OK(attach_to_system(turns, std::move(tools), std::nullopt));
  chat.conversation.input = std::move(turns);
  CACHALOT_TRY(const Json* output_config, fields.object("output_config"));
  CACHALOT_OK(parse_thinking(fields, output_config, chat.conversation.options));
  CACHALOT_OK(parse_output_format(fields, output_config, chat));
  CACHALOT_OK(parse_sampling(fields, use, chat));
  CACHALOT_TRY(const auto stream, fields.boolean("stream"));
  request.stream = stream.value_or(false);
  return request;
}

}  // namespace cachalot
