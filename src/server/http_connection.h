// One connection of the server: requests one after another, watched while they are answered.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "server/http_server.h"
#include "server/worker_pool.h"

namespace cachalot {

// Lives as long as anything waits for its socket or a handler works on its request. The socket and
// what belongs to it are touched by the thread of the io_context only; `output_` is shared.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, const HttpServerOptions& options,
                 WorkerPool& workers);

  void start();
  // No request after the one being answered; one that has not been read to its end is refused.
  void finish();
  void close();

 private:
  class Exchange;
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { idle, header, body, handling, discarding, closed };

  // Reading.
  void await_request();
  void read_header();
  void on_header(const ErrorCode& error);
  void take_header();
  void read_body();
  void on_body(const ErrorCode& error);
  void watch();
  void on_watched(const ErrorCode& error, size_t bytes);
  void linger(bool sends);
  void discard();

  // Answering.
  void handle();
  void run_handler();
  void refuse(const ErrorCode& error);
  void reply(const HttpReply& reply);
  void after_response();
  void log_access();

  // Writing.
  std::string head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::optional<size_t> length);
  bool enqueue(std::string_view data, bool wait_for_room);
  void response_ends(bool whole);
  void pump();

  Clock::duration time_to_read() const;
  void expire_after(Clock::duration time);
  void give_up();

  boost::asio::ip::tcp::socket socket_;
  const HttpServerOptions& options_;
  WorkerPool& workers_;
  boost::asio::steady_timer timer_;
  uint64_t expiry_ = 0;  // the number of the expiry that counts
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Phase phase_ = Phase::idle;
  bool watching_ = false;
  size_t discarded_ = 0;
  std::string peer_;
  std::atomic<bool> finishing_{false};

  // Of the request being answered; the handler's thread reads them.
  HttpRequest request_;
  HttpHeaders common_headers_;
  Clock::time_point started_;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  HttpAccess access_;

  struct Output {
    std::mutex mutex;
    std::condition_variable room;
    std::string queued;    // not yet given to the socket
    bool pumping = false;  // someone will call pump()
    bool ended = false;    // nothing more comes
    bool whole = true;     // the response is complete
    bool gone = false;     // the client
    bool lost = false;     // bytes that it did not get
    std::function<void()> on_gone;
  };
  Output output_;
  std::string writing_;
  size_t written_ = 0;
};

}  // namespace cachalot
