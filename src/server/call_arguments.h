// Arguments of calls as the model wrote them, for interfaces that want more than their text.
#pragma once

#include <string>
#include <string_view>

#include "chat/json_value.h"

namespace cachalot {

// The arguments as an object. Of a text that was cut off: what is complete of it, the last string
// as far as it goes. A text that is no JSON becomes {"arguments": text}, which is how prompts show
// such a call.
Json arguments_object(std::string_view text, bool complete);

// The text of a sole argument {"input": "..."}, while the arguments are being written.
class InputArgument {
 public:
  // More of the arguments -> more of the text.
  std::string push(std::string_view arguments);
  // The rest, once all arguments are there. Arguments of another form are the text themselves.
  std::string finish();

 private:
  enum class State { opening, text, closed, other } state_ = State::opening;
  std::string arguments_;
  size_t read_ = 0;  // bytes of arguments_ that are used up

  bool read_character(std::string& out);
};

}  // namespace cachalot
