// The body of /chat/completions.
#pragma once

#include "server/chat_request.h"
#include "server/request_fields.h"
#include "server/service.h"

namespace cachalot {

struct ChatCall {
  ChatRequest request;
  std::string model;  // the name to answer with
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;  // llama-server's name: chunks about the prompt being read
};

// Errors: 400 with the field.
ApiResult<ChatCall> read_chat_call(Json body, const Service& service);

// messages, tools, tool_choice -> a conversation; `options` are kept. Also used to apply the
// template alone.
ApiResult<Conversation> read_conversation(Json& body, const ChatOptions& options);

// stream, stream_options.include_usage
ApiStatus read_stream(const RequestFields& fields, bool& stream, bool& include_usage);

}  // namespace cachalot
