// Fields that several endpoints share: sampling, lengths, stops, constraints of the text.
#pragma once

#include "server/request_fields.h"
#include "server/service.h"

namespace cachalot {

// temperature, top_p, top_k (-1 and 0: all), min_p, repetition_penalty or repeat_penalty,
// presence_penalty, frequency_penalty, seed (-1: random), logit_bias, stop, stop_token_ids,
// ignore_eos, n, priority, timeout, prefill, cache_prompt. What is absent stays as it is.
ApiStatus read_common_fields(const RequestFields& fields, const Service& service,
                             ChatRequest& request);

// max_completion_tokens or max_tokens, from `least` on.
ApiStatus read_max_tokens(const RequestFields& fields, int64_t least, ChatRequest& request);

// response_format, guided_json, guided_regex, guided_choice, guided_grammar, structured_outputs,
// grammar, json_schema: at most one of them.
ApiStatus read_constraint(const RequestFields& fields, ChatRequest& request);

// The field `model`: absent, or a name the server answers to. Returns the name to answer with.
ApiResult<std::string> read_model(const RequestFields& fields, const Service& service);

// `thinking` ({"type": "enabled" | "disabled"} or a boolean), `reasoning_effort` and
// chat_template_kwargs, in this order of precedence.
ApiStatus read_thinking(const RequestFields& fields, ChatOptions& options);

// `array` is an array. Errors name the element.
ApiResult<std::vector<int32_t>> read_token_ids(const Json& array, std::string_view path,
                                               int64_t vocab_size, int64_t most);

inline constexpr int64_t kMostChoices = 128;
inline constexpr int64_t kMostTopLogprobs = 20;
inline constexpr size_t kMostStops = 16;

}  // namespace cachalot
