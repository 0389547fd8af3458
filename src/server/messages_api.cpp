// Anthropic's interface: /v1/messages, /v1/messages/count_tokens, and the list of models as its
// clients read it.
#include "server/messages_error.h"
#include "server/messages_request.h"
#include "server/messages_writer.h"
#include "server/reply.h"
#include "server/request_fields.h"
#include "server/router.h"

namespace cachalot {
namespace {

ApiStatus answer_messages(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(MessagesRequest request,
               parse_messages_request(body, service.new_request(), service.defaults()));
  MessagesWriter writer(random_id("msg_"), request.model, exchange.request().id);
  request.chat.abandoned = [&exchange] { return exchange.gone(); };
  CACHALOT_TRY(const auto answer, service.answer(std::move(request.chat)));
  send_events(exchange, *answer, writer, request.stream, send_messages_error);
  return {};
}

ApiStatus count_tokens(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(
      const MessagesRequest request,
      parse_messages_request(body, service.new_request(), service.defaults(), MessagesUse::count));
  CACHALOT_TRY(const int64_t tokens, service.count_tokens(request.chat.conversation,
                                                          [&exchange] { return exchange.gone(); }));
  send_json(exchange, 200, Json(Json::Object{{"input_tokens", Json::integer(tokens)}}));
  return {};
}

ApiStatus list_models(Service& service, HttpExchange& exchange) {
  Json::Array models;
  for (const std::string& name : service.defaults().model_names) {
    if (name == "*") continue;
    models.push_back(Json(Json::Object{{"type", Json("model")},
                                       {"id", Json(name)},
                                       {"display_name", Json(name)},
                                       {"created_at", Json("1970-01-01T00:00:00Z")}}));
  }
  const Json first = models.empty() ? Json() : *models.front().find("id");
  const Json last = models.empty() ? Json() : *models.back().find("id");
  send_json(exchange, 200,
            Json(Json::Object{{"data", Json(std::move(models))},
                              {"has_more", Json(false)},
                              {"first_id", first},
                              {"last_id", last}}));
  return {};
}

using Answer = ApiStatus (*)(Service& service, HttpExchange& exchange);

ApiHandler with_errors(Answer answer) {
  return [answer](Service& service, HttpExchange& exchange, const std::string&) {
    const ApiStatus status = answer(service, exchange);
    if (!status) send_messages_error(exchange, status.error());
  };
}

}  // namespace

void add_messages_routes(Router& router) {
  for (const std::string base : {"", "/v1", "/anthropic", "/anthropic/v1"}) {
    router.add("POST", base + "/messages", with_errors(answer_messages));
    router.add("POST", base + "/messages/count_tokens", with_errors(count_tokens));
  }
  router.add("GET", "/anthropic/v1/models", with_errors(list_models));
}

}  // namespace cachalot
