#include "server/messages_error.h"

#include "server/reply.h"

namespace cachalot {
namespace {

std::string_view messages_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 402:
      return "billing_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

bool is_messages_path(std::string_view path) {
  for (const std::string_view base : {"/anthropic", "/v1/messages", "/messages"}) {
    if (path == base || (path.starts_with(base) && path[base.size()] == '/')) return true;
  }
  return false;
}

int messages_status(const ApiError& error) { return error.status == 503 ? 529 : error.status; }

Json messages_error_json(const ApiError& error, std::string_view request_id) {
  // The same care for what a client sent as in the other shape.
  const Json text = *error_json(error).find("error")->find("message");
  return Json(Json::Object{
      {"type", "error"},
      {"error", Json(Json::Object{{"type", Json(messages_error_type(messages_status(error)))},
                                  {"message", text}})},
      {"request_id", request_id},
  });
}

void send_messages_error(HttpExchange& exchange, const ApiError& error) {
  const std::string& id = exchange.request().id;
  HttpHeaders headers = retry_after(error);
  headers.emplace_back("request-id", id);
  send_json(exchange, messages_status(error), messages_error_json(error, id), std::move(headers));
}

}  // namespace cachalot
