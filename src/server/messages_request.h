// The body of Anthropic's /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <string>

#include "server/chat_request.h"
#include "server/service.h"

namespace cachalot {

struct MessagesRequest {
  ChatRequest chat;
  std::string model;  // the name to answer with
  bool stream = false;
};

enum class MessagesUse {
  answer,  // max_tokens is required
  count,   // only what the prompt is made of matters
};

// `fresh` holds what the request leaves open (Service::new_request()). Beside the names of
// `defaults` every name that begins with "claude" means the served model, as programs made for
// Anthropic's models ask for them. Accepted without effect: metadata, top_k, service_tier,
// container, mcp_servers, cache_control, thinking.budget_tokens. Errors name the field.
ApiResult<MessagesRequest> parse_messages_request(const Json& body, ChatRequest fresh,
                                                  const ServiceDefaults& defaults,
                                                  MessagesUse use = MessagesUse::answer);

}  // namespace cachalot
