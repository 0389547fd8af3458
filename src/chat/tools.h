// Tool definitions and calls: names with namespaces, arguments of earlier calls.
#pragma once

#include "chat/messages.h"

namespace cachalot {

struct QualifiedName {
  std::string name_space;  // empty: none
  std::string name;
};

// "name" or "namespace::name"; anything else with "::" is an error.
Result<QualifiedName> split_name(std::string_view text);

// One entry of a message's tool_calls.
Result<ToolCall> parse_tool_call(const Json& call);

}  // namespace cachalot
