#include "server/http_connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <ctime>

#include "server/reply.h"

namespace cachalot {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kPipelined = size_t{64} << 10;   // bytes of later requests that are read ahead
constexpr size_t kQueued = size_t{1} << 20;       // bytes a handler may be ahead of its client
constexpr size_t kSlice = size_t{256} << 10;      // bytes that reset the time a client has to read
constexpr size_t kDiscarded = size_t{256} << 20;  // of a body nobody wants, before hanging up
constexpr std::chrono::seconds kLinger{10};       // for a client that still sends
constexpr std::chrono::seconds kGoodbye{1};       // for one that should hang up

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool equal_without_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// A client's own id goes into logs and headers: short and printable, or it is replaced.
std::string request_id(std::string_view given) {
  const bool usable =
      !given.empty() && given.size() <= 128 &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > 32 && c < 127; });
  return usable ? std::string(given) : random_id("req_");
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

// A proxy's form of a target, "http://host/path", without the host.
std::string_view without_authority(std::string_view target) {
  const size_t scheme = target.find("://");
  if (scheme == target.npos || target.find_first_of("/?") < scheme) return target;
  const size_t path = target.find_first_of("/?", scheme + 3);
  return path == target.npos || target[path] == '?' ? "/" : target.substr(path);
}

// RFC 9110 lacks the status of a model that is being loaded, as Anthropic's clients know it.
std::string_view reason_phrase(int status) {
  if (status == 529) return "Overloaded";
  return view(http::obsolete_reason(static_cast<http::status>(status)));
}

// Whether it is known where the body ends: whoever sends one behind a coding that is not understood
// here, or says its length in two ways, may mean another end than this server, and the rest would
// pass for a request of its own (RFC 9112, 6.1). Returns what is wrong.
std::optional<std::string> unclear_body(const HttpHeaders& headers) {
  int codings = 0, lengths = 0;
  for (const auto& [name, value] : headers) {
    lengths += equal_without_case(name, "content-length");
    if (!equal_without_case(name, "transfer-encoding")) continue;
    if (!equal_without_case(value, "chunked"))
      return fmt::format("transfer-encoding {}: expected chunked, or a Content-Length", value);
    ++codings;
  }
  if (codings > 1 || (codings > 0 && lengths > 0))
    return "expected one Transfer-Encoding, or a Content-Length";
  return std::nullopt;
}

// What is wrong with a request that could not be read; status 0: nobody waits for an answer.
std::pair<int, std::string> reading_failure(const boost::system::error_code& error,
                                            const HttpServerOptions& options, bool finishing) {
  if (finishing && error == asio::error::operation_aborted) return {503, "the server is stopping"};
  if (error == http::error::header_limit)
    return {431, fmt::format("the header has more than {} bytes", options.header_bytes)};
  if (error == http::error::body_limit)
    return {413, fmt::format("the body has more than {} bytes", options.body_bytes)};
  if (error == http::error::end_of_stream || error == http::error::partial_message) return {0, ""};
  if (error.category() == http::make_error_code(http::error::bad_method).category())
    return {400, fmt::format("this is no HTTP/1.1 request: {}", error.message())};
  return {0, ""};
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (equal_without_case(key, name)) return value;
  return {};
}

// What a handler holds.
class HttpConnection::Exchange final : public HttpExchange {
 public:
  explicit Exchange(HttpConnection& connection) : connection_(connection) {}

  const HttpRequest& request() const override { return connection_.request_; }

  void send(int status, std::string_view content_type, std::string body,
            HttpHeaders headers) override {
    if (begun_) return;
    begun_ = ended_ = true;
    const std::string head = connection_.head(status, content_type, headers, body.size());
    if (connection_.request_.method == "HEAD") body.clear();
    connection_.access_.sent += std::ssize(body);
    connection_.enqueue(head + body, false);
  }

  void begin(int status, std::string_view content_type, HttpHeaders headers) override {
    if (begun_) return;
    begun_ = true;
    connection_.enqueue(connection_.head(status, content_type, headers, std::nullopt), false);
  }

  bool write(std::string_view data) override {
    if (!begun_ || ended_) return false;
    if (data.empty()) return !gone();
    connection_.access_.sent += std::ssize(data);
    if (connection_.version_ < 11) return connection_.enqueue(data, true);
    return connection_.enqueue(fmt::format("{:x}\r\n{}\r\n", data.size(), data), true);
  }

  void end() override {
    if (!begun_ || ended_) return;
    ended_ = true;
    if (connection_.version_ >= 11) connection_.enqueue("0\r\n\r\n", false);
  }

  bool begun() const override { return begun_; }
  bool ended() const { return ended_; }

  bool gone() const override {
    const std::lock_guard lock(connection_.output_.mutex);
    return connection_.output_.gone;
  }

  // Under the lock: once on_gone({}) has returned, no call is under way.
  void on_gone(std::function<void()> function) override {
    const std::lock_guard lock(connection_.output_.mutex);
    connection_.output_.on_gone = std::move(function);
    if (connection_.output_.gone && connection_.output_.on_gone) connection_.output_.on_gone();
  }

  void note(std::string_view key, std::string value) override {
    connection_.access_.notes.emplace_back(key, std::move(value));
  }

 private:
  HttpConnection& connection_;
  bool begun_ = false, ended_ = false;
};

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, const HttpServerOptions& options,
                               WorkerPool& workers)
    : socket_(std::move(socket)),
      options_(options),
      workers_(workers),
      timer_(socket_.get_executor()),
      buffer_(options.header_bytes + kPipelined) {}

void HttpConnection::start() {
  ErrorCode error;
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  const auto endpoint = socket_.remote_endpoint(error);
  if (!error) peer_ = endpoint.address().to_string();
  await_request();
}

void HttpConnection::finish() {
  finishing_ = true;
  ErrorCode ignored;
  switch (phase_) {
    case Phase::idle:
      return close();
    case Phase::header:
    case Phase::body:  // not accepted: whoever reads it says so
      socket_.cancel(ignored);
      return;
    case Phase::handling:
      if (written_ < writing_.size()) expire_after(time_to_read());
      return;
    case Phase::discarding:
      expire_after(kGoodbye);
      return;
    case Phase::closed:
      return;
  }
}

void HttpConnection::close() {
  if (phase_ == Phase::handling) give_up();
  phase_ = Phase::closed;
  ++expiry_;
  timer_.cancel();
  ErrorCode ignored;
  socket_.close(ignored);
}

// ---- reading

void HttpConnection::await_request() {
  phase_ = Phase::idle;
  if (finishing_) return close();
  if (buffer_.size() > 0) {
    // A read that is still under way holds the buffer.
    if (!watching_) return read_header();
    ErrorCode ignored;
    socket_.cancel(ignored);
    return;
  }
  expire_after(options_.idle_timeout);
  watch();
}

void HttpConnection::read_header() {
  phase_ = Phase::header;
  started_ = Clock::now();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_.header_bytes));
  parser_->body_limit(options_.body_bytes);
  expire_after(options_.header_timeout);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const ErrorCode& error, size_t) { self->on_header(error); });
}

void HttpConnection::take_header() {
  const auto& message = parser_->get();
  request_ = HttpRequest();
  request_.method = view(message.method_string());
  const std::string_view target = without_authority(view(message.target()));
  const size_t question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != target.npos) request_.query = target.substr(question + 1);
  for (const auto& field : message)
    request_.headers.emplace_back(view(field.name_string()), view(field.value()));
  request_.peer = peer_;
  request_.id = request_id(request_.header("x-request-id"));
  version_ = message.version();
  keep_alive_ = message.keep_alive();
  common_headers_ = options_.common_headers ? options_.common_headers(request_) : HttpHeaders();
  access_ = HttpAccess();
  output_.ended = false;
  output_.whole = true;
}

void HttpConnection::on_header(const ErrorCode& error) {
  if (phase_ != Phase::header) return;
  if (error) return refuse(error);
  take_header();
  if (const auto wrong = unclear_body(request_.headers)) {
    keep_alive_ = false;
    return reply(options_.error_reply(request_, 501, *wrong));
  }
  if (version_ >= 11 && parser_->get().count(http::field::host) != 1) {
    keep_alive_ = keep_alive_ && parser_->is_done();
    return reply(options_.error_reply(request_, 400, "expected one Host header in the request"));
  }
  const std::string_view coding = request_.header("content-encoding");
  if (!coding.empty() && coding != "identity") {
    keep_alive_ = keep_alive_ && parser_->is_done();
    return reply(options_.error_reply(
        request_, 415,
        fmt::format("content-encoding {}: expected a body that is not compressed", coding)));
  }
  if (options_.screen) {
    if (const auto answer = options_.screen(request_)) {
      keep_alive_ = keep_alive_ && parser_->is_done();
      return reply(*answer);
    }
  }
  if (!equal_without_case(request_.header("expect"), "100-continue")) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                    [self = shared_from_this()](const ErrorCode& failed, size_t) {
                      if (failed) return self->close();
                      self->read_body();
                    });
}

void HttpConnection::read_body() {
  if (phase_ == Phase::closed) return;
  if (parser_->is_done()) return handle();
  if (finishing_) return refuse(asio::error::operation_aborted);
  phase_ = Phase::body;
  const auto length = parser_->content_length();
  const size_t bytes = length ? static_cast<size_t>(*length) : options_.body_bytes;
  expire_after(options_.body_timeout + std::chrono::seconds(bytes >> 13));
  http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const ErrorCode& error, size_t) { self->on_body(error); });
}

void HttpConnection::on_body(const ErrorCode& error) {
  if (phase_ != Phase::body) return;
  if (error) return refuse(error);
  handle();
}

// Reads ahead, to see the end of the connection.
void HttpConnection::watch() {
  if (watching_ || buffer_.size() >= kPipelined) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            self->on_watched(error, bytes);
                          });
}

void HttpConnection::on_watched(const ErrorCode& error, size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (phase_ == Phase::idle) {
    if (buffer_.size() > 0) return read_header();
    return close();
  }
  if (phase_ != Phase::handling) return;
  if (error) return give_up();
  watch();
}

// The response is on its way; a client that still sends would lose it if the socket closed now.
void HttpConnection::linger(bool sends) {
  phase_ = Phase::discarding;
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (watching_) socket_.cancel(ignored);
  discarded_ = 0;
  writing_.resize(kSlice);
  expire_after(sends && !finishing_ ? kLinger : kGoodbye);
  discard();
}

void HttpConnection::discard() {
  socket_.async_read_some(asio::buffer(writing_),
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            self->discarded_ += bytes;
                            if (error || self->discarded_ > kDiscarded) return self->close();
                            self->discard();
                          });
}

// ---- answering

void HttpConnection::handle() {
  phase_ = Phase::handling;
  ++expiry_;
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  workers_.run([self = shared_from_this()] { self->run_handler(); });
  watch();
}

void HttpConnection::run_handler() {
  Exchange exchange(*this);
  try {
    options_.handler(exchange);
  } catch (const std::exception& error) {
    exchange.note("exception", error.what());
  }
  exchange.on_gone({});
  if (!exchange.begun()) {
    // 499, as proxies log it: nobody waits for an answer any more.
    const HttpReply failure = options_.error_reply(request_, exchange.gone() ? 499 : 500,
                                                   "the request could not be handled");
    exchange.send(failure.status, failure.content_type, failure.body, {});
  }
  response_ends(exchange.ended());
}

// A request that could not be read.
void HttpConnection::refuse(const ErrorCode& error) {
  const auto [status, message] = reading_failure(error, options_, finishing_);
  if (status == 0) return close();
  take_header();
  keep_alive_ = false;
  reply(options_.error_reply(request_, status, message));
}

void HttpConnection::reply(const HttpReply& reply) {
  phase_ = Phase::handling;
  ++expiry_;
  std::string text = head(reply.status, reply.content_type, reply.headers, reply.body.size());
  if (request_.method != "HEAD") text += reply.body;
  access_.sent = std::ssize(reply.body);
  enqueue(text, false);
  response_ends(true);
}

void HttpConnection::after_response() {
  bool gone = false, whole = true;
  {
    const std::lock_guard lock(output_.mutex);
    gone = output_.gone;
    whole = output_.whole;
    access_.complete = whole && !output_.lost;
  }
  log_access();
  // A stream that broke off must not look like one that ended.
  if (gone || !whole || phase_ == Phase::closed) {
    phase_ = Phase::closed;
    return close();
  }
  const bool unread_body = parser_.has_value() && !parser_->is_done();
  parser_.reset();
  if (!keep_alive_ || finishing_ || unread_body || version_ < 11) return linger(unread_body);
  await_request();
}

void HttpConnection::log_access() {
  if (!options_.log) return;
  access_.id = request_.id;
  access_.peer = peer_;
  access_.method = request_.method;
  access_.path = request_.path;
  access_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  options_.log(access_);
}

// ---- writing

std::string HttpConnection::head(int status, std::string_view content_type,
                                 const HttpHeaders& headers, std::optional<size_t> length) {
  access_.status = status;
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status), http_date());
  const bool empty = status == 204 || status == 304;
  if (!content_type.empty() && !empty) text += fmt::format("Content-Type: {}\r\n", content_type);
  if (length && !empty) text += fmt::format("Content-Length: {}\r\n", *length);
  if (!length && version_ >= 11) text += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_ || finishing_ || version_ < 11) text += "Connection: close\r\n";
  text += fmt::format("X-Request-Id: {}\r\n", request_.id);
  for (const auto& [name, value] : common_headers_) text += fmt::format("{}: {}\r\n", name, value);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + "\r\n";
}

bool HttpConnection::enqueue(std::string_view data, bool wait_for_room) {
  std::unique_lock lock(output_.mutex);
  if (wait_for_room)
    output_.room.wait(lock, [this] { return output_.gone || output_.queued.size() < kQueued; });
  if (output_.gone) {
    output_.lost = true;
    return false;
  }
  output_.queued += data;
  if (std::exchange(output_.pumping, true)) return true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->pump(); });
  return true;
}

void HttpConnection::response_ends(bool whole) {
  const std::lock_guard lock(output_.mutex);
  output_.ended = true;
  output_.whole = whole;
  if (std::exchange(output_.pumping, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->pump(); });
}

// Gives the socket the next slice, or sees that there is none.
void HttpConnection::pump() {
  bool ended = false;
  if (written_ == writing_.size()) {
    const std::lock_guard lock(output_.mutex);
    writing_.clear();
    written_ = 0;
    writing_.swap(output_.queued);
    output_.room.notify_all();
    if (writing_.empty()) {
      output_.pumping = false;
      ended = std::exchange(output_.ended, false);
    }
  }
  if (writing_.empty()) {
    ++expiry_;
    if (ended) after_response();
    return;
  }
  const size_t slice = std::min(writing_.size() - written_, kSlice);
  expire_after(time_to_read());
  asio::async_write(socket_, asio::buffer(writing_.data() + written_, slice),
                    [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                      if (error) self->give_up();
                      self->written_ += error ? self->writing_.size() - self->written_ : bytes;
                      self->pump();
                    });
}

// ---- time and end

HttpConnection::Clock::duration HttpConnection::time_to_read() const {
  return finishing_ ? std::min(options_.write_timeout, options_.last_write_timeout)
                    : options_.write_timeout;
}

void HttpConnection::expire_after(Clock::duration time) {
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), number = ++expiry_](const ErrorCode& error) {
    if (error || number != self->expiry_) return;
    // Whoever sends a request too slowly is told so; whoever reads too slowly would not hear it.
    const bool reading = self->phase_ == Phase::header || self->phase_ == Phase::body;
    if (!reading) return self->close();
    ErrorCode ignored;
    self->socket_.cancel(ignored);
    self->take_header();
    self->keep_alive_ = false;
    self->reply(
        self->options_.error_reply(self->request_, 408, "the request took too long to arrive"));
  });
}

// The client has gone: whoever answers it learns so.
void HttpConnection::give_up() {
  const std::lock_guard lock(output_.mutex);
  if (output_.gone) return;
  output_.gone = true;
  output_.lost = !output_.queued.empty() || written_ < writing_.size();
  output_.queued.clear();
  output_.room.notify_all();
  if (output_.on_gone) output_.on_gone();
}

}  // namespace cachalot
