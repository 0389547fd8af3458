// The body of OpenAI's /v1/responses and /v1/responses/input_tokens.
#pragma once

#include <set>
#include <string>

#include "server/chat_request.h"
#include "server/service.h"

namespace cachalot {

struct ResponsesRequest {
  ChatRequest chat;
  bool stream = false;
  std::set<std::string> custom_tools;  // qualified names; their calls are custom_tool_call items
  bool logprobs = false;               // include: message.output_text.logprobs
  Json echo;                           // members of the response that repeat the request
};

// `fresh` holds what the request leaves open (Service::new_request()). Accepted without effect:
// store, user, metadata (repeated in the response), service_tier, prompt_cache_key,
// safety_identifier, max_tool_calls, truncation, reasoning.summary, text.verbosity, stream_options.
// Refused, as nothing is stored here: previous_response_id, conversation, background, prompt.
// Errors name the field.
ApiResult<ResponsesRequest> parse_responses_request(const Json& body, ChatRequest fresh,
                                                    const ServiceDefaults& defaults);

}  // namespace cachalot
