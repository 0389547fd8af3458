// What an answer was parsed into.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cachalot {

struct ParsedParameter {
  std::string key;
  bool is_string = false;
  std::string value;  // as written by the model, not escaped
};

struct ParsedCall {
  std::string id;
  std::string name;        // without the namespace
  std::string name_space;  // empty: none
  // JSON text. Values of string="false" stand in it as the model wrote them, valid or not. A call
  // that was cut off by a length limit has unterminated text.
  std::string arguments;
  bool complete = false;
};

struct ParsedMessage {
  std::string reasoning_content;
  std::string content;
  std::vector<ParsedCall> tool_calls;
  std::string finish_reason;          // stop, length or tool_calls
  std::vector<std::string> warnings;  // oddities that were tolerated
  // Why a call could not be parsed; empty if all went well. The broken call is not in tool_calls.
  std::string failure;
};

// {"key": value, ...}; of a repeated key the last value counts, at the first place.
std::string arguments_text(const std::vector<ParsedParameter>& parameters);

// Sets name and, for NAMESPACE::NAME, name_space.
void set_call_name(ParsedCall& call, std::string_view qualified);

}  // namespace cachalot
