// The server as clients meet it: who may ask, what is where, and what it says while the model
// loads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "server/http_server.h"
#include "server/router.h"
#include "server/service.h"

namespace cachalot {

struct ApiServerOptions {
  HttpServerOptions http;             // address, limits, log; the rest is filled in
  std::vector<std::string> api_keys;  // empty: everybody may ask
  std::vector<std::string> origins;   // pages of other origins that may ask; "*": all
  bool metrics = true;
  ExplorerSource explorer;  // what /explore shows; none: nothing
  bool traces = false;      // the service has a live_explorer()
  std::string version;
};

class ApiServer {
 public:
  // Answers from now on: /health and the page at once, the rest with 503 until there is a service.
  // Errors: see HttpServer::start.
  static Result<std::unique_ptr<ApiServer>> start(ApiServerOptions options);
  ~ApiServer();

  uint16_t port() const { return http_->port(); }
  // What /health tells while the model loads; 0 to 1.
  void set_progress(double share) { progress_ = share; }
  // `service` outlives the server.
  void set_service(Service* service) { service_ = service; }
  // New requests get 503, /health too.
  void set_stopping() { stopping_ = true; }

  HttpServer& http() { return *http_; }

 private:
  explicit ApiServer(ApiServerOptions options);

  std::optional<HttpReply> screen(const HttpRequest& request) const;
  std::optional<ApiError> refusal(const HttpRequest& request) const;
  std::vector<std::string> methods_of(std::string_view path) const;
  bool may_ask(const HttpRequest& request) const;
  HttpHeaders common_headers(const HttpRequest& request) const;
  HttpReply preflight(const HttpRequest& request) const;
  bool is_open(const HttpRequest& request) const;
  void handle(HttpExchange& exchange);
  void send_health(HttpExchange& exchange) const;

  ApiServerOptions options_;
  Router router_;
  std::atomic<Service*> service_{nullptr};
  std::atomic<double> progress_{0};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<HttpServer> http_;
};

}  // namespace cachalot
