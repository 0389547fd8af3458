#include "server/responses_request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "server/request_fields.h"
#include "server/responses_input.h"
#include "server/responses_tools.h"

namespace cachalot {
namespace {

constexpr int64_t kManyTokens = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostTopLogprobs = 20;

ApiStatus refuse_stored(const RequestFields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.member(name))
      return refuse(name, "this server stores nothing; send the whole conversation as input");
  }
  CACHALOT_TRY(const auto background, fields.boolean("background"));
  if (background && *background)
    return refuse("background", "this server stores nothing; wait for the answer or stream it");
  return {};
}

ApiResult<std::string> parse_model(const RequestFields& fields, const ServiceDefaults& defaults) {
  const auto& names = defaults.model_names;
  CACHALOT_TRY(const auto model, fields.string("model"));
  if (!model || model->empty()) return names.front();
  const auto answers = [&](const std::string& name) { return name == *model || name == "*"; };
  if (std::any_of(names.begin(), names.end(), answers)) return *model;
  return fail(ApiError(404,
                       fmt::format("model: there is no model {} here; use {}", found(Json(*model)),
                                   fmt::join(names, " or ")),
                       "model", "model_not_found"));
}

ApiStatus parse_reasoning(const RequestFields& fields, ChatOptions& options, Json& echo) {
  CACHALOT_TRY(const Json* json, fields.object("reasoning"));
  Json effort;
  if (json) {
    const RequestFields reasoning(*json, "reasoning");
    if (const Json* given = reasoning.member("effort")) {
      const bool none = given->string() && *given->string() == "none";
      if (!set_effort(options, *given, EffortNames::kPublic))
        return refuse("reasoning.effort", "expected {}, found {}",
                      effort_choices(EffortNames::kPublic), found(*given));
      if (!none) options.thinking = true;
      effort = *given;
    }
  }
  echo.set("reasoning", Json(Json::Object{{"effort", effort}, {"summary", Json()}}));
  return {};
}

// text.format: {"type": "text" | "json_object" | "json_schema", "schema"}
ApiStatus parse_text(const RequestFields& fields, ChatRequest& chat, Json& echo) {
  Constraint& constraint = chat.constraint;
  echo.set("text", Json(Json::Object{{"format", Json(Json::Object{{"type", Json("text")}})}}));
  CACHALOT_TRY(const Json* json, fields.object("text"));
  if (!json) return {};
  CACHALOT_TRY(const Json* given, RequestFields(*json, "text").object("format"));
  if (!given) return {};
  const RequestFields format(*given, "text.format");
  CACHALOT_TRY(const auto type, format.string("type"));
  if (!type || (*type != "text" && *type != "json_object" && *type != "json_schema"))
    return refuse("text.format.type", "expected text, json_object or json_schema, found {}",
                  type ? found(Json(*type)) : "nothing");
  if (*type == "json_object") constraint.kind = Constraint::kJsonObject;
  if (*type == "json_schema") {
    CACHALOT_TRY(const Json* schema, format.object("schema"));
    if (!schema) return refuse("text.format.schema", "missing; expected a JSON schema");
    constraint.kind = Constraint::kJsonSchema;
    constraint.schema = *schema;
    chat.constraint_field = format.path("schema");
  }
  echo.set("text", *json);
  return {};
}

ApiStatus parse_include(const RequestFields& fields, ResponsesRequest& request) {
  constexpr size_t kMostIncluded = 64;
  CACHALOT_TRY(const auto names, fields.strings("include", kMostIncluded));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name == "message.output_text.logprobs") request.logprobs = true;
  }
  CACHALOT_TRY(const auto top, fields.integer("top_logprobs", 0, kMostTopLogprobs));
  request.chat.logprobs = request.logprobs;
  request.chat.top_logprobs = top.value_or(0);
  return {};
}

ApiStatus parse_sampling(const RequestFields& fields, ChatRequest& chat, Json& echo) {
  CACHALOT_TRY(const auto max_tokens, fields.integer("max_output_tokens", 1, kManyTokens));
  if (max_tokens) chat.max_tokens = *max_tokens;
  echo.set("max_output_tokens", max_tokens ? Json::integer(*max_tokens) : Json());
  CACHALOT_TRY(const auto temperature, fields.number("temperature", 0, 2));
  if (temperature) chat.sampling.temperature = *temperature;
  echo.set("temperature", Json(chat.sampling.temperature));
  CACHALOT_TRY(const auto top_p, fields.number("top_p", 0, 1));
  if (top_p) chat.sampling.top_p = *top_p;
  echo.set("top_p", Json(chat.sampling.top_p));
  return {};
}

// What the response repeats without a meaning here.
ApiStatus parse_repeated(const RequestFields& fields, Json& echo) {
  CACHALOT_TRY(const Json* metadata, fields.object("metadata"));
  echo.set("metadata", metadata ? *metadata : Json(Json::Object{}));
  CACHALOT_TRY(const auto truncation, fields.string("truncation"));
  if (truncation && *truncation != "auto" && *truncation != "disabled")
    return refuse("truncation", "expected auto or disabled, found {}", found(Json(*truncation)));
  echo.set("truncation", Json(truncation.value_or("disabled")));
  CACHALOT_TRY([[maybe_unused]] const auto store, fields.boolean("store"));
  echo.set("store", Json(false));
  CACHALOT_TRY(const auto user, fields.string("user"));
  echo.set("user", user ? Json(*user) : Json());
  echo.set("previous_response_id", Json());
  return {};
}

ApiResult<Chat> parse_messages(const RequestFields& fields, Json& echo) {
  Chat chat;
  CACHALOT_TRY(const auto instructions, fields.string("instructions"));
  echo.set("instructions", instructions ? Json(*instructions) : Json());
  if (instructions && !instructions->empty()) {
    Message message;
    message.role = Role::kSystem;
    message.blocks.push_back(TextBlock{*instructions});
    chat.messages.push_back(std::move(message));
  }
  const Json* input = fields.member("input");
  if (!input) return refuse("input", "missing; expected a string or an array of items");
  CACHALOT_TRY(std::vector<Message> messages, parse_responses_input(*input));
  // Instructions alone ask for nothing.
  if (messages.back().role == Role::kSystem && chat.messages.size() + messages.size() == 1)
    return refuse("input", "there is nothing to answer in it: it holds a system message only");
  for (Message& message : messages) chat.messages.push_back(std::move(message));
  Message& last = chat.messages.back();
  if (last.role == Role::kAssistant) last.prefix = last.without_end = true;
  return chat;
}

ApiStatus parse_tools_into(const RequestFields& fields, Chat& chat, ResponsesRequest& request) {
  CACHALOT_TRY(ResponsesTools tools, parse_responses_tools(fields));
  request.custom_tools = std::move(tools.custom);
  request.chat.conversation.options.tool_choice = tools.choice;
  CACHALOT_OK(attach_to_system(chat, std::move(tools.tools), std::nullopt));
  const Json* given = fields.member("tools");
  const Json* choice = fields.member("tool_choice");
  request.echo.set("tools", given ? *given : Json(Json::Array{}));
  request.echo.set("tool_choice", choice ? *choice : Json("auto"));
  CACHALOT_TRY(const auto parallel, fields.boolean("parallel_tool_calls"));
  request.chat.parallel_tool_calls = parallel.value_or(true);
  request.echo.set("parallel_tool_calls", Json(request.chat.parallel_tool_calls));
  return {};
}

}  // namespace

ApiResult<ResponsesRequest> parse_responses_request(const Json& body, ChatRequest fresh,
                                                    const ServiceDefaults& defaults) {
  const RequestFields fields(body);
  ResponsesRequest request{std::move(fresh)};
  request.echo = Json(Json::Object{});
  ChatRequest& chat = request.chat;
  CACHALOT_OK(refuse_stored(fields));
  CACHALOT_TRY(std::string model, parse_model(fields, defaults));
  request.echo.set("model", Json(std::move(model)));
  CACHALOT_TRY(Chat turns, parse_messages(fields, request.echo));
  CACHALOT_OK(parse_tools_into(fields, turns, request));
  chat.conversation.input = std::move(turns);
  CACHALOT_OK(parse_reasoning(fields, chat.conversation.options, request.echo));
  CACHALOT_OK(parse_text(fields, chat, request.echo));
  CACHALOT_OK(parse_include(fields, request));
  CACHALOT_OK(parse_sampling(fields, chat, request.echo));
  CACHALOT_OK(parse_repeated(fields, request.echo));
  CACHALOT_TRY(const auto stream, fields.boolean("stream"));
  request.stream = stream.value_or(false);
  return request;
}

}  // namespace cachalot
