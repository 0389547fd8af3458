#include "server/tool_checks.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

namespace cachalot {
namespace {

class OpenCalls {
 public:
  explicit OpenCalls(std::string_view field) : field_(field) {}

  ApiStatus begin(const Message& assistant) {
    CACHALOT_OK(end());
    answered_.clear();
    for (const ToolCall& call : assistant.tool_calls) {
      if (call.id.empty()) return refuse(field_, "the call of '{}' has no id", call.qualified());
      if (!waiting_.insert(call.id).second)
        return refuse(field_, "two calls of one turn have the id '{}'", call.id);
    }
    return {};
  }

  ApiStatus take(const ToolResultBlock& result) {
    const std::string& id = result.tool_call_id;
    if (waiting_.erase(id)) {
      answered_.insert(id);
      return {};
    }
    if (answered_.contains(id)) return refuse(field_, "the call '{}' has two results", id);
    return refuse(field_, "the result of '{}' belongs to no call of the assistant turn before it",
                  id);
  }

  ApiStatus end() {
    if (waiting_.empty()) return {};
    return refuse(field_, "the call '{}' has no result before the next assistant turn or the end",
                  *waiting_.begin());
  }

 private:
  std::string_view field_;
  std::set<std::string> waiting_;
  std::set<std::string> answered_;
};

}  // namespace

ApiStatus check_tool_name(std::string_view name, std::string_view where) {
  if (name.empty()) return refuse(where, "expected a non-empty string");
  if (name.find_first_of("\"\n") != name.npos)
    return refuse(where, "expected a name without quotes and line breaks");
  return {};
}

ApiStatus check_tool_parameters(const RequestFields& schema) {
  constexpr size_t kMany = std::numeric_limits<size_t>::max();
  CACHALOT_TRY(const auto types, schema.strings("type", kMany, true));
  if (types && std::ranges::find(*types, "object") == types->end())
    return refuse(schema.path("type"), "parameters are members of an object: expected object, {}",
                  types->empty() ? "found nothing" : "found " + found(Json(types->front())));
  CACHALOT_TRY(const Json* properties, schema.object("properties"));
  for (const Json::Member& member : properties ? *properties->object() : Json::Object{}) {
    if (!member.value.object() && !member.value.boolean())
      return refuse(fmt::format("{}.{}", schema.path("properties"), member.key),
                    "expected a JSON schema, found {}", found(member.value));
  }
  CACHALOT_TRY([[maybe_unused]] const auto required, schema.strings("required", kMany));
  return {};
}

ApiStatus check_tool_results(const std::vector<Message>& messages, std::string_view field) {
  OpenCalls calls(field);
  for (const Message& message : messages) {
    if (message.role == Role::kAssistant) CACHALOT_OK(calls.begin(message));
    for (const ContentBlock& block : message.blocks) {
      if (const auto* result = std::get_if<ToolResultBlock>(&block))
        CACHALOT_OK(calls.take(*result));
    }
  }
  return calls.end();
}

}  // namespace cachalot
