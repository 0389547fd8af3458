// /chat/completions: OpenAI's chat with DeepSeek's fields.
#include "server/chat_fields.h"
#include "server/chat_reply.h"
#include "server/reply.h"
#include "server/router.h"

namespace cachalot {
namespace {

ApiStatus answer_chat(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(ChatCall call, read_chat_call(std::move(body), service));
  ChatReply reply(call);
  call.request.abandoned = [&exchange] { return exchange.gone(); };
  CACHALOT_TRY(const auto answer, service.answer(std::move(call.request)));
  send_reply(exchange, *answer, reply, call.stream);
  return {};
}

}  // namespace

void add_chat_routes(Router& router) {
  router.add_api("POST", "/chat/completions",
                 [](Service& service, HttpExchange& exchange, const std::string&) {
                   const ApiStatus status = answer_chat(service, exchange);
                   if (!status) send_error(exchange, status.error());
                 });
}

}  // namespace cachalot
