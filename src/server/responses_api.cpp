// OpenAI's newer interface: /v1/responses and /v1/responses/input_tokens.
#include "server/reply.h"
#include "server/request_fields.h"
#include "server/responses_request.h"
#include "server/responses_writer.h"
#include "server/router.h"

namespace cachalot {
namespace {

ApiStatus answer_responses(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(ResponsesRequest request,
               parse_responses_request(body, service.new_request(), service.defaults()));
  ResponsesWriter writer({.id = random_id(""),
                          .created_at = unix_time(),
                          .echo = std::move(request.echo),
                          .custom_tools = std::move(request.custom_tools),
                          .logprobs = request.logprobs});
  request.chat.abandoned = [&exchange] { return exchange.gone(); };
  CACHALOT_TRY(const auto answer, service.answer(std::move(request.chat)));
  send_events(exchange, *answer, writer, request.stream, send_error);
  return {};
}

ApiStatus count_input_tokens(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(const ResponsesRequest request,
               parse_responses_request(body, service.new_request(), service.defaults()));
  CACHALOT_TRY(const int64_t tokens, service.count_tokens(request.chat.conversation,
                                                          [&exchange] { return exchange.gone(); }));
  send_json(exchange, 200,
            Json(Json::Object{{"object", Json("response.input_tokens")},
                              {"input_tokens", Json::integer(tokens)}}));
  return {};
}

using Answer = ApiStatus (*)(Service& service, HttpExchange& exchange);

ApiHandler with_errors(Answer answer) {
  return [answer](Service& service, HttpExchange& exchange, const std::string&) {
    const ApiStatus status = answer(service, exchange);
    if (!status) send_error(exchange, status.error());
  };
}

}  // namespace

void add_responses_routes(Router& router) {
  router.add_api("POST", "/responses", with_errors(answer_responses));
  router.add_api("POST", "/responses/input_tokens", with_errors(count_input_tokens));
}

}  // namespace cachalot
