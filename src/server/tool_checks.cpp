#include "server/tool_checks.h"

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
