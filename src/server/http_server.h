// An HTTP/1.1 server: connections, limits and timeouts. Knows nothing of models.
//
// One thread does all reading and writing; handlers run on threads of their own. While a handler
// works, the connection is watched: a client that closes it is noticed at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace cachalot {

struct HttpReply {
  int status = 200;
  std::string content_type;
  std::string body;
  HttpHeaders headers = {};
};

// What the access log may know.
struct HttpAccess {
  std::string id, peer, method, path;
  int status = 0;        // 0: the client went before there was one
  int64_t sent = 0;      // bytes of bodies
  double seconds = 0;    // from the request's first byte to the response's last
  bool complete = true;  // the response was sent whole
  HttpHeaders notes = {};
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  size_t header_bytes = size_t{32} << 10;
  size_t body_bytes = size_t{48} << 20;
  size_t connections = 4096;
  size_t threads = 256;                         // handlers at work; further requests wait
  std::chrono::seconds header_timeout{20};      // for a header, from its first byte on
  std::chrono::seconds body_timeout{60};        // for a body, and a second more for every 8 KiB
  std::chrono::seconds idle_timeout{75};        // between requests of a connection
  std::chrono::seconds write_timeout{60};       // for a client that reads nothing
  std::chrono::seconds last_write_timeout{10};  // the same once the server stops

  // Sees every request before its body is read: an answer of its own ends it there. `body` is
  // empty.
  std::function<std::optional<HttpReply>(const HttpRequest&)> screen = {};
  HttpHandler handler;
  // Headers that every response of this request gets.
  std::function<HttpHeaders(const HttpRequest&)> common_headers = {};
  // The body of a response to what is no acceptable HTTP: 400, 408, 413, 415, 431, 503.
  std::function<HttpReply(const HttpRequest& request, int status, const std::string& message)>
      error_reply;
  std::function<void(const HttpAccess&)> log = {};
};

class HttpServer {
 public:
  // Listens and serves from now on. Errors: an address that is none, a port in use or not
  // permitted.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options);

  virtual ~HttpServer() = default;  // as stop()

  virtual uint16_t port() const = 0;
  // Accepts nothing new; what is being answered is answered, then its connection closed; a request
  // that has not arrived whole gets 503. Returns when no connection is left or the time is up.
  // True: none is left.
  virtual bool drain(std::chrono::milliseconds most) = 0;
  // Closes all connections (handlers see gone()) and waits for the handlers.
  virtual void stop() = 0;
};

}  // namespace cachalot
