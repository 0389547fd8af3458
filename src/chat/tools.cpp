#include "chat/tools.h"

namespace cachalot {
namespace {

struct Namespace {
  std::string name;
  std::string description;
};

// `holder` is a tool, function or call that may have a `namespace`: a string or {name,
// description}.
Result<std::optional<Namespace>> explicit_namespace(const Json& holder) {
  const Json* given = holder.find("namespace");
  if (!given || given->is_null()) return std::optional<Namespace>();
  Namespace result;
  const Json* name = given->object() ? given->find("name") : given;
  if (!name || !name->string() || name->string()->empty()) {
    return fail("namespace: expected a name or an object with a name, found {}",
                given->kind_name());
  }
  result.name = *name->string();
  if (result.name.find("::") != std::string::npos) {
    return fail("namespace: '{}' contains '::'", result.name);
  }
  if (const Json* description = given->find("description");
      description && !description->is_null()) {
    if (!description->string()) {
      return fail("namespace.description: expected a string, found {}", description->kind_name());
    }
    result.description = *description->string();
  }
  return std::optional<Namespace>(std::move(result));
}

// The namespace of a tool or call, from its two levels; they may not disagree.
Result<std::optional<Namespace>> namespace_of(const Json& outer, const Json& function) {
  CACHALOT_TRY(auto result, explicit_namespace(outer));
  CACHALOT_TRY(auto inner, explicit_namespace(function));
  if (!result) return inner;
  if (inner && inner->name != result->name) {
    return fail("namespace: '{}' and '{}' disagree", result->name, inner->name);
  }
  if (inner && result->description.empty()) result->description = inner->description;
  return result;
}

Result<QualifiedName> name_of(const Json& function, const std::optional<Namespace>& given) {
  const Json* name = function.find("name");
  if (!name || !name->string() || name->string()->empty()) {
    return fail("function.name: expected a non-empty string, found {}",
                name ? name->kind_name() : "nothing");
  }
  auto split = split_name(*name->string());
  if (!split) return fail(split.error().in("function.name"));
  if (!given) return split;
  if (!split->name_space.empty() && split->name_space != given->name) {
    return fail("function.name: '{}' contradicts namespace '{}'", *name->string(), given->name);
  }
  split->name_space = given->name;
  return split;
}

Result<Tool> parse_tool(const Json& tool) {
  const Json* function = tool.find("function");
  if (!function || !function->object()) {
    return fail("expected {{\"type\": \"function\", \"function\": {{...}}}}, found {}",
                tool.object() ? "no function object" : tool.kind_name());
  }
  CACHALOT_TRY(const auto given, namespace_of(tool, *function));
  CACHALOT_TRY(const QualifiedName name, name_of(*function, given));
  Tool result{.qualified_name = name.name, .name = name.name, .function = *function};
  if (name.name_space.empty()) return result;
  result.qualified_name = name.name_space + "::" + name.name;
  result.function.erase("namespace");
  result.function.set("name", result.qualified_name);
  if (given && !given->description.empty()) {
    const Json* own = function->find("description");
    const bool has_own = own && own->string() && !own->string()->empty();
    result.function.set("description",
                        has_own ? given->description + "\n" + *own->string() : given->description);
  }
  return result;
}

// An object, or a string with one, perhaps encoded twice; the rest becomes {"arguments": original}.
Json parse_arguments(const Json& original) {
  Json value = original;
  for (int round = 0; round < 2 && value.string(); ++round) {
    auto parsed = parse_json(*value.string());
    if (!parsed) break;
    value = std::move(*parsed);
  }
  if (value.object()) return value;
  return Json(Json::Object{{"arguments", original}});
}

}  // namespace

Result<QualifiedName> split_name(std::string_view text) {
  const size_t at = text.find("::");
  if (at == text.npos) return QualifiedName{"", std::string(text)};
  const std::string_view name = text.substr(at + 2);
  if (at == 0 || name.empty() || name.find("::") != name.npos || name.front() == ':') {
    return fail("'{}': expected NAME or NAMESPACE::NAME with one '::'", text);
  }
  return QualifiedName{std::string(text.substr(0, at)), std::string(name)};
}

Result<ToolCall> parse_tool_call(const Json& call) {
  const Json* function = call.find("function");
  if (!function || !function->object()) {
    return fail("expected {{\"id\", \"type\", \"function\": {{...}}}}, found {}",
                call.object() ? "no function object" : call.kind_name());
  }
  CACHALOT_TRY(const auto given, namespace_of(call, *function));
  CACHALOT_TRY(const QualifiedName name, name_of(*function, given));
  ToolCall result{.id = {}, .name = name.name, .name_space = name.name_space, .arguments = {}};
  if (const Json* id = call.find("id"); id && !id->is_null()) {
    if (!id->string()) return fail("id: expected a string, found {}", id->kind_name());
    result.id = *id->string();
  }
  const Json* arguments = function->find("arguments");
  if (!arguments || arguments->is_null()) {
    return fail("function.arguments: expected a string with a JSON object, found {}",
                arguments ? "null" : "nothing");
  }
  result.arguments = parse_arguments(*arguments);
  return result;
}

Result<std::vector<Tool>> parse_tools(const Json& tools, std::string_view where) {
  std::vector<Tool> result;
  if (tools.is_null()) return result;
  if (!tools.array())
    return fail("{}: expected an array of tools, found {}", where, tools.kind_name());
  for (size_t i = 0; i < tools.array()->size(); ++i) {
    auto tool = parse_tool((*tools.array())[i]);
    if (!tool) return fail(tool.error().in(fmt::format("{}[{}]", where, i)));
    result.push_back(std::move(*tool));
  }
  return result;
}

}  // namespace cachalot
