#include "server/responses_tools.h"

#include <algorithm>

#include "chat/tools.h"
#include "server/tool_checks.h"

namespace cachalot {
namespace {

// Where a tool stands: the namespace around it, if any.
struct Surroundings {
  std::string where;
  Json name_space;  // {"name", "description"} or null
};

std::string found_type(const std::optional<std::string>& type) {
  return type ? found(Json(*type)) : "nothing";
}

// The name, the description and the parameters of a function, as the model reads them.
Json function_of(const std::string& name, const std::string& description, Json parameters) {
  Json function(Json::Object{{"name", Json(name)}});
  if (!description.empty()) function.set("description", Json(description));
  function.set("parameters", std::move(parameters));
  return function;
}

ApiResult<Json> parse_function(const RequestFields& tool, const std::string& name) {
  CACHALOT_TRY(const auto description, tool.string("description"));
  CACHALOT_TRY(const Json* parameters, tool.object("parameters"));
  if (parameters)
    CACHALOT_OK(check_tool_parameters(RequestFields(*parameters, tool.path("parameters"))));
  CACHALOT_TRY(const auto strict, tool.boolean("strict"));
  const Json none(Json::Object{{"type", Json("object")}, {"properties", Json(Json::Object{})}});
  Json function = function_of(name, description.value_or(""), parameters ? *parameters : none);
  if (strict && *strict) function.set("strict", Json(true));
  return function;
}

// A custom tool takes text. A grammar for it stands in the description: the model has no other
// place to read it.
ApiResult<Json> parse_custom(const RequestFields& tool, const std::string& name) {
  CACHALOT_TRY(const auto given, tool.string("description"));
  std::string description = given.value_or("");
  CACHALOT_TRY(const Json* json, tool.object("format"));
  if (json) {
    const RequestFields format(*json, tool.path("format"));
    CACHALOT_TRY(const auto type, format.string("type"));
    if (!type || (*type != "text" && *type != "grammar"))
      return refuse(format.path("type"), "expected text or grammar, found {}", found_type(type));
    if (*type == "grammar") {
      CACHALOT_TRY(const auto syntax, format.string("syntax"));
      CACHALOT_TRY(const auto definition, format.string("definition"));
      if (!syntax || (*syntax != "lark" && *syntax != "regex"))
        return refuse(format.path("syntax"), "expected lark or regex, found {}",
                      found_type(syntax));
      if (!definition) return refuse(format.path("definition"), "missing; expected a string");
      if (!description.empty()) description += "\n\n";
      description +=
          fmt::format("The input follows this {}:\n{}",
                      *syntax == "lark" ? "Lark grammar" : "regular expression", *definition);
    }
  }
  const Json text(Json::Object{{"type", Json("string")}});
  Json parameters(Json::Object{
      {"type", Json("object")},
      {"properties", Json(Json::Object{{"input", text}})},
      {"required", Json(Json::Array{Json("input")})},
  });
  return function_of(name, description, std::move(parameters));
}

ApiStatus add_tool(ResponsesTools& result, const Json& function, const Surroundings& around,
                   bool custom) {
  Json wrapped(Json::Object{{"function", function}});
  if (!around.name_space.is_null()) wrapped.set("namespace", around.name_space);
  auto tools = parse_tools(Json(Json::Array{wrapped}), around.where);
  if (!tools) return refuse(around.where, "no usable name: {}", tools.error().message);
  Tool& tool = tools->front();
  for (const Tool& other : result.tools) {
    if (other.qualified_name == tool.qualified_name)
      return refuse(around.where, "another tool has the name '{}', too", tool.qualified_name);
  }
  if (custom) result.custom.insert(tool.qualified_name);
  result.tools.push_back(std::move(tool));
  return {};
}

ApiStatus parse_tool(const Json& json, const Surroundings& around, ResponsesTools& result);

ApiStatus parse_namespace(const RequestFields& tool, const Surroundings& around,
                          ResponsesTools& result) {
  if (!around.name_space.is_null())
    return refuse(tool.path("type"), "a namespace cannot hold another one");
  CACHALOT_TRY(const auto name, tool.string("name"));
  CACHALOT_OK(check_tool_name(name.value_or(""), tool.path("name")));
  CACHALOT_TRY(const auto description, tool.string("description"));
  Json name_space(Json::Object{{"name", Json(*name)}});
  if (description) name_space.set("description", Json(*description));
  CACHALOT_TRY(const Json* tools, tool.array("tools"));
  if (!tools) return refuse(tool.path("tools"), "missing; expected an array of tools");
  for (size_t i = 0; i < tools->array()->size(); ++i) {
    const Surroundings inside{fmt::format("{}[{}]", tool.path("tools"), i), name_space};
    CACHALOT_OK(parse_tool((*tools->array())[i], inside, result));
  }
  return {};
}

ApiStatus parse_tool(const Json& json, const Surroundings& around, ResponsesTools& result) {
  if (!json.object()) return refuse(around.where, "expected a tool, found {}", found(json));
  const RequestFields tool(json, around.where);
  CACHALOT_TRY(const auto type, tool.string("type"));
  if (type && type->starts_with("web_search")) return {};
  if (type && *type == "namespace") return parse_namespace(tool, around, result);
  const bool custom = type && *type == "custom";
  if (!custom && (!type || *type != "function"))
    return refuse(tool.path("type"), "only function, custom and namespace are offered, found {}",
                  found_type(type));
  CACHALOT_TRY(const auto name, tool.string("name"));
  CACHALOT_OK(check_tool_name(name.value_or(""), tool.path("name")));
  CACHALOT_TRY(const Json function,
               custom ? parse_custom(tool, *name) : parse_function(tool, *name));
  return add_tool(result, function, around, custom);
}

bool has_tool(const ResponsesTools& tools, const std::string& name) {
  return std::any_of(tools.tools.begin(), tools.tools.end(),
                     [&](const Tool& tool) { return tool.qualified_name == name; });
}

ApiStatus parse_mode(const std::string& mode, const std::string& where, ResponsesTools& result) {
  if (mode == "none") {
    result.choice.kind = ToolChoice::kNone;
  } else if (mode == "required") {
    if (result.tools.empty()) return refuse(where, "required needs tools, and there are none");
    result.choice.kind = ToolChoice::kRequired;
  } else if (mode != "auto") {
    return refuse(where, "expected none, auto, required or an object, found {}", found(Json(mode)));
  }
  return {};
}

ApiStatus keep_allowed(const RequestFields& choice, ResponsesTools& result) {
  CACHALOT_TRY(const Json* allowed, choice.array("tools"));
  if (!allowed) return refuse(choice.path("tools"), "missing; expected an array of tools");
  std::set<std::string> names;
  for (size_t i = 0; i < allowed->array()->size(); ++i) {
    const std::string where = fmt::format("{}[{}]", choice.path("tools"), i);
    const Json& entry = (*allowed->array())[i];
    if (!entry.object()) return refuse(where, "expected a tool, found {}", found(entry));
    CACHALOT_TRY(const std::string name, qualified_tool_name(RequestFields(entry, where)));
    if (!has_tool(result, name)) return refuse(where, "there is no tool {}", found(Json(name)));
    names.insert(name);
  }
  std::erase_if(result.tools,
                [&](const Tool& tool) { return !names.contains(tool.qualified_name); });
  CACHALOT_TRY(const auto mode, choice.string("mode"));
  return parse_mode(mode.value_or("auto"), choice.path("mode"), result);
}

ApiStatus parse_choice(const Json& json, ResponsesTools& result) {
  if (const std::string* mode = json.string()) return parse_mode(*mode, "tool_choice", result);
  if (!json.object())
    return refuse("tool_choice", "expected none, auto, required or an object, found {}",
                  found(json));
  const RequestFields choice(json, "tool_choice");
  CACHALOT_TRY(const auto type, choice.string("type"));
  if (type && *type == "allowed_tools") return keep_allowed(choice, result);
  if (!type || (*type != "function" && *type != "custom"))
    return refuse("tool_choice.type", "expected function, custom or allowed_tools, found {}",
                  found_type(type));
  CACHALOT_TRY(const std::string name, qualified_tool_name(choice));
  if (!has_tool(result, name))
    return refuse("tool_choice.name", "there is no tool {}", found(Json(name)));
  result.choice = {.kind = ToolChoice::kRequired, .name = name};
  return {};
}

}  // namespace

ApiResult<std::string> qualified_tool_name(const RequestFields& fields) {
  CACHALOT_TRY(const auto name, fields.string("name"));
  CACHALOT_OK(check_tool_name(name.value_or(""), fields.path("name")));
  CACHALOT_TRY(const auto name_space, fields.string("namespace"));
  const std::string qualified =
      name_space && !name_space->empty() ? *name_space + "::" + *name : *name;
  if (!split_name(qualified))
    return refuse(fields.path("name"), "{} is no name of a tool", found(Json(qualified)));
  return qualified;
}

ApiResult<ResponsesTools> parse_responses_tools(const RequestFields& fields) {
  ResponsesTools result;
  CACHALOT_TRY(const Json* tools, fields.array("tools"));
  for (size_t i = 0; tools && i < tools->array()->size(); ++i) {
    const Surroundings around{fmt::format("tools[{}]", i), Json()};
    CACHALOT_OK(parse_tool((*tools->array())[i], around, result));
  }
  if (const Json* choice = fields.member("tool_choice")) CACHALOT_OK(parse_choice(*choice, result));
  return result;
}

}  // namespace cachalot
