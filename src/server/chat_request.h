// What every endpoint turns its JSON into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/messages.h"
#include "engine/prefill.h"
#include "engine/sampler.h"
#include "fetch/fetcher.h"
#include "grammar/grammar_compiler.h"

namespace cachalot {

struct ChatRequest {
  Conversation conversation;
  // Instead of a conversation: these ids, and an answer without structure.
  std::optional<std::vector<int32_t>> prompt;

  SamplingParameters sampling;          // validated by Service::answer
  int64_t max_tokens = 0;               // 0: until the context is full
  std::vector<std::string> stops;       // looked for in the content
  std::vector<int32_t> stop_token_ids;  // beside the model's end tokens
  bool ignore_end = false;              // the model's end tokens do not end the answer
  int64_t choices = 1;
  bool logprobs = false;
  int64_t top_logprobs = 0;
  bool prompt_only = false;      // no answer is wanted: a finished event and no deltas
  bool prompt_logprobs = false;  // of the prompt's tokens, in the first choice's `finished`

  Constraint constraint;
  std::string constraint_field;  // that asked for it, as the request names it
  bool parallel_tool_calls = true;

  int64_t priority = 0;                   // smaller is served first
  std::optional<double> timeout_seconds;  // absent: the server's
  std::optional<PrefillMode> prefill;     // absent: the server's
  bool reuse_cache = true;

  Abandoned abandoned;  // whether the client has gone: then no picture is fetched for it
};

}  // namespace cachalot
