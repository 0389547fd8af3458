#include "server/api_server.h"

#include <algorithm>

#include "server/messages_error.h"
#include "server/reply.h"
#include "server/web_files.h"

namespace cachalot {
namespace {

// Takes the same time wherever the texts differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 1 : b[i % b.size()]);
  return difference == 0;
}

std::string_view bearer(const HttpRequest& request) {
  std::string_view value = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  const bool matches = value.size() > kScheme.size() &&
                       std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                                  [](char scheme, char given) { return scheme == (given | 0x20); });
  return matches ? value.substr(kScheme.size()) : std::string_view();
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ", "));
}

HttpReply reply_of(const HttpRequest& request, const ApiError& error) {
  HttpReply reply{error.status, "application/json", error_json(error).dump()};
  if (is_messages_path(request.path)) {
    reply.status = messages_status(error);
    reply.body = messages_error_json(error, request.id).dump();
    reply.headers.emplace_back("request-id", request.id);
  }
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.retry_after > 0)
    reply.headers.emplace_back("Retry-After",
                               std::to_string(static_cast<int64_t>(error.retry_after)));
  return reply;
}

void send_file(HttpExchange& exchange, const WebFile& file) {
  HttpHeaders headers{{"ETag", std::string(file.etag)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", std::string(kWebContentSecurityPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (exchange.request().header("if-none-match") == file.etag)
    return exchange.send(304, file.content_type, "", std::move(headers));
  exchange.send(200, file.content_type,
                std::string(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()),
                std::move(headers));
}

bool is_health(std::string_view path) { return path == "/health" || path == "/v1/health"; }

// What the server itself answers, without the model: GET and HEAD.
bool is_own(std::string_view path) {
  return is_health(path) || path == "/ping" || path == "/version" || find_web_file(path) != nullptr;
}

bool reads(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

}  // namespace

ApiServer::ApiServer(ApiServerOptions options) : options_(std::move(options)) {
  add_chat_routes(router_);
  add_completion_routes(router_);
  add_responses_routes(router_);
  add_messages_routes(router_);
  add_model_routes(router_);
  add_operation_routes(router_, options_.metrics);
  add_explore_routes(router_, options_.explorer);
  if (options_.traces) add_trace_routes(router_);
}

ApiServer::~ApiServer() {
  if (http_) http_->stop();
}

Result<std::unique_ptr<ApiServer>> ApiServer::start(ApiServerOptions options) {
  std::unique_ptr<ApiServer> server(new ApiServer(std::move(options)));
  ApiServer* self = server.get();
  HttpServerOptions http = self->options_.http;
  http.screen = [self](const HttpRequest& request) { return self->screen(request); };
  http.handler = [self](HttpExchange& exchange) { self->handle(exchange); };
  http.common_headers = [self](const HttpRequest& request) {
    return self->common_headers(request);
  };
  http.error_reply = [](const HttpRequest& request, int status, const std::string& message) {
    ApiError error(status, message);
    if (status == 503) error.retry_after = 1;
    return reply_of(request, error);
  };
  CACHALOT_TRY(server->http_, HttpServer::start(std::move(http)));
  return server;
}

// What tells nothing of the model or its users.
bool ApiServer::is_open(const HttpRequest& request) const {
  return is_own(request.path) && request.path != "/version";
}

bool ApiServer::may_ask(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  std::string_view given = bearer(request);
  if (given.empty()) given = request.header("x-api-key");
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= same_secret(key, given);
  return found;
}

std::optional<HttpReply> ApiServer::screen(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return preflight(request);
  const auto error = refusal(request);
  if (!error) return std::nullopt;
  HttpReply reply = reply_of(request, *error);
  if (error->status == 405) reply.headers.emplace_back("Allow", joined(methods_of(request.path)));
  return reply;
}

// What may be asked of a path; empty: there is nothing.
std::vector<std::string> ApiServer::methods_of(std::string_view path) const {
  if (is_own(path)) return {"GET", "HEAD"};
  std::vector<std::string> methods = router_.find("", path).methods;
  if (std::ranges::find(methods, "GET") != methods.end()) methods.emplace_back("HEAD");
  return methods;
}

std::optional<ApiError> ApiServer::refusal(const HttpRequest& request) const {
  if (!is_open(request) && !may_ask(request)) {
    const bool given = !bearer(request).empty() || !request.header("x-api-key").empty();
    return ApiError(401,
                    given ? "the API key is not one of this server's"
                          : "expected an API key: Authorization: Bearer KEY, or x-api-key: KEY",
                    {}, "invalid_api_key");
  }
  const std::vector<std::string> methods = methods_of(request.path);
  if (methods.empty())
    return ApiError(404, fmt::format("there is nothing at {} {}", request.method, request.path), {},
                    "not_found");
  if (std::ranges::find(methods, request.method) == methods.end())
    return ApiError(
        405, fmt::format("{} takes {}, found {}", request.path, joined(methods), request.method),
        {}, "method_not_allowed");
  if (is_own(request.path)) return std::nullopt;
  if (!service_ || stopping_) {
    ApiError error(503, stopping_ ? "the server is stopping" : "the model is being loaded", {},
                   stopping_ ? "server_stopping" : "model_loading");
    error.retry_after = 1;
    return error;
  }
  return std::nullopt;
}

HttpHeaders ApiServer::common_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || options_.origins.empty()) return {};
  const auto allowed = [&](std::string_view name) {
    return std::ranges::find(options_.origins, name) != options_.origins.end();
  };
  HttpHeaders headers;
  if (allowed("*")) {
    headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    headers.emplace_back("Vary", "Origin");
    if (!allowed(origin)) return headers;
    headers.emplace_back("Access-Control-Allow-Origin", origin);
  }
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

HttpReply ApiServer::preflight(const HttpRequest& request) const {
  HttpReply reply{204, "", ""};
  if (options_.origins.empty()) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  std::string_view wanted = request.header("access-control-request-headers");
  if (wanted.empty()) wanted = "Authorization, Content-Type, X-Api-Key";
  reply.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  reply.headers.emplace_back("Access-Control-Max-Age", "86400");
  return reply;
}

void ApiServer::send_health(HttpExchange& exchange) const {
  if (service_ && !stopping_)
    return send_json(exchange, 200, Json(Json::Object{{"status", Json("ok")}}));
  ApiError error(503, stopping_ ? "the server is stopping" : "the model is being loaded", {},
                 stopping_ ? "server_stopping" : "model_loading");
  Json body = error_json(error);
  body.set("status", Json(stopping_ ? "stopping" : "loading model"));
  if (!stopping_) body.set("progress", Json(progress_.load()));
  send_json(exchange, 503, body, {{"Retry-After", "1"}});
}

void ApiServer::handle(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (is_health(request.path)) return send_health(exchange);
  if (request.path == "/ping") return exchange.send(200, "text/plain", "pong\n");
  if (request.path == "/version")
    return send_json(exchange, 200, Json(Json::Object{{"version", Json(options_.version)}}));
  if (const WebFile* file = find_web_file(request.path)) return send_file(exchange, *file);
  const std::string_view method = reads(request) ? "GET" : std::string_view(request.method);
  const Router::Match match = router_.find(method, request.path);
  Service* service = service_;
  if (!match.handler || !service)
    return send_error(exchange, ApiError(503, "the model is being loaded", {}, "model_loading"));
  (*match.handler)(*service, exchange, match.parameter);
}

}  // namespace cachalot
