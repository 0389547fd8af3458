#include "server/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <list>
#include <thread>

#include "server/http_connection.h"

namespace cachalot {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class BeastServer final : public HttpServer {
 public:
  explicit BeastServer(HttpServerOptions options)
      : options_(std::move(options)),
        acceptor_(context_),
        retry_(context_),
        workers_(std::make_unique<WorkerPool>(options_.threads)) {}

  ~BeastServer() override { stop(); }

  Status listen() {
    error_code error;
    tcp::resolver resolver(context_);
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                        tcp::resolver::passive, error);
    if (error || found.empty())
      return fail("{}: expected an address of this machine: {}", options_.host, error.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      return fail("{}:{}: cannot listen here: {}; choose another with --host and --port",
                  options_.host, options_.port, error.message());
    port_ = acceptor_.local_endpoint().port();
    accept();
    thread_ = std::thread([this] { context_.run(); });
    return {};
  }

  uint16_t port() const override { return port_; }

  bool drain(std::chrono::milliseconds most) override {
    asio::post(context_, [this] {
      draining_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      for_each([](HttpConnection& connection) { connection.finish(); });
    });
    const auto end = std::chrono::steady_clock::now() + most;
    while (live_ > 0 || !draining_) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      asio::post(context_, [this] { prune(); });
    }
    return true;
  }

  void stop() override {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] {
      draining_ = true;
      retry_.cancel();
      error_code ignored;
      acceptor_.close(ignored);
      for_each([](HttpConnection& connection) {
        connection.finish();
        connection.close();
      });
    });
    work_.reset();
    workers_.reset();  // handlers see that their clients are gone
    thread_.join();    // nothing is waited for any more
    connections_.clear();
    live_ = 0;  // a drain() on another thread ends
  }

 private:
  HttpServerOptions options_;
  asio::io_context context_{1};
  // Without it the thread would end with the last connection.
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::unique_ptr<WorkerPool> workers_;
  std::thread thread_;
  std::list<std::weak_ptr<HttpConnection>> connections_;
  std::atomic<size_t> live_{0};
  std::atomic<bool> draining_{false};
  uint16_t port_ = 0;

  template <class F>
  void for_each(F&& function) {
    for (const auto& weak : std::list(connections_))
      if (const auto connection = weak.lock()) function(*connection);
  }

  void prune() {
    connections_.remove_if([](const auto& weak) { return weak.expired(); });
    live_ = connections_.size();
  }

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (draining_) return;
      if (error) return accept_later();
      prune();
      const auto connection =
          std::make_shared<HttpConnection>(std::move(socket), options_, *workers_);
      connections_.push_back(connection);
      live_ = connections_.size();
      connection->start();
      if (live_ < options_.connections) return accept();
      accept_later();
    });
  }

  // Too many connections, or no more files: the next ones wait in the system's queue.
  void accept_later() {
    retry_.expires_after(std::chrono::milliseconds(50));
    retry_.async_wait([this](const error_code& error) {
      if (error || draining_) return;
      prune();
      if (live_ < options_.connections) return accept();
      accept_later();
    });
  }
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options) {
  auto server = std::make_unique<BeastServer>(std::move(options));
  CACHALOT_OK(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace cachalot
