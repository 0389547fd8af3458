// HTTP as handlers see it: a request that has arrived whole, and a way to answer it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cachalot {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // GET, POST, ...
  std::string path;    // as sent, without the query
  std::string query;   // without the question mark
  HttpHeaders headers;
  std::string body;
  std::string peer;  // address of the client
  std::string id;    // x-request-id, the client's own or a new one

  // Names are compared without case; empty if absent.
  std::string_view header(std::string_view name) const;
};

// A request being answered. A handler runs on a thread of its own and either sends one whole
// response or begins a stream, writes to it and ends it.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  virtual void send(int status, std::string_view content_type, std::string body,
                    HttpHeaders headers = {}) = 0;

  virtual void begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  // Waits while the client reads too slowly. False: the client has gone, nothing more is sent.
  virtual bool write(std::string_view data) = 0;
  virtual void end() = 0;
  virtual bool begun() const = 0;  // of a response or a stream

  // Whether the client has closed the connection, or the server gives up on it.
  virtual bool gone() const = 0;
  // Called at once when that happens, from another thread; immediately if it already has. Must not
  // block. The function is forgotten when the handler returns.
  virtual void on_gone(std::function<void()> function) = 0;

  // For the access log.
  virtual void note(std::string_view key, std::string value) = 0;
};

using HttpHandler = std::function<void(HttpExchange&)>;

}  // namespace cachalot
