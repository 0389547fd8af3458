// The body of /completions.
#pragma once

#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/service.h"

namespace cachalot {

struct CompletionCall {
  std::vector<ChatRequest> requests;  // one per prompt
  std::vector<std::string> echo;      // what to repeat of each prompt: its text
  std::vector<int64_t> unechoed;      // per prompt: tokens the server put before it
  std::string model;
  bool stream = false, include_usage = false;
  bool echoes = false;
  bool logprobs = false;
  int64_t choices = 1;  // of each prompt
};

// prompt: a string, strings, token ids or lists of token ids; suffix (fill in the middle), echo,
// logprobs (0 to 20), max_tokens, add_special_tokens, and the fields of common_fields.h.
ApiResult<CompletionCall> read_completion_call(const Json& body, const Service& service);

}  // namespace cachalot
