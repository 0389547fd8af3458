// The tools of OpenAI's /v1/responses.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "chat/messages.h"
#include "server/api_error.h"
#include "server/request_fields.h"

namespace cachalot {

struct ResponsesTools {
  std::vector<Tool> tools;
  // Qualified names of those whose input is text and no JSON. The model knows them as functions
  // with one string, `input`.
  std::set<std::string> custom;
  ToolChoice choice;
};

// The members tools and tool_choice. Tools are functions, custom tools and namespaces of both.
// Searches of the web are left out, since programs offer them without need; the other tools that a
// server would have to run itself are errors. Of a choice among allowed tools the others are left
// out.
ApiResult<ResponsesTools> parse_responses_tools(const RequestFields& fields);

// The name of a function or custom tool as a call or a choice gives it: name, namespace.
ApiResult<std::string> qualified_tool_name(const RequestFields& fields);

}  // namespace cachalot
