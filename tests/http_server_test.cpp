// The HTTP server alone: limits, timeouts, pipelining, clients that go away.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http_client.h"
#include "server/reply.h"

namespace cachalot {
namespace {

using namespace std::chrono_literals;
using test::HttpClient;
using test::HttpResponse;

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpHandler handler) {
    options_.port = 0;
    options_.handler = std::move(handler);
    options_.error_reply = [](const HttpRequest&, int status, const std::string& message) {
      return HttpReply{status, "application/json", error_json(ApiError(status, message)).dump()};
    };
    options_.log = [this](const HttpAccess& access) {
      const std::lock_guard lock(mutex_);
      log_.push_back(access);
    };
    auto server = HttpServer::start(options_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  static void echo(HttpExchange& exchange) {
    exchange.send(
        200, "text/plain",
        exchange.request().method + " " + exchange.request().path + " " + exchange.request().body);
  }
  bool wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(10ms);
    return condition();
  }

  std::mutex mutex_;
  std::vector<HttpAccess> log_;
  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOneRequestAfterAnotherOnAConnection) {
  start(echo);
  HttpClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const HttpResponse response = client.request("POST", "/a?b=c", std::to_string(i));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /a " + std::to_string(i));
  }
  EXPECT_EQ(client.request("HEAD", "/x").status, 200);
  EXPECT_EQ(client.request("GET", "/y").body, "GET /y ");
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start([](HttpExchange& exchange) {
    if (exchange.request().path == "/slow") std::this_thread::sleep_for(100ms);
    echo(exchange);
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/slow");
  for (int i = 0; i < 20; ++i) client.send_request("POST", "/fast", std::to_string(i));
  EXPECT_EQ(client.read_response().body, "GET /slow ");
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.read_response().body, "POST /fast " + std::to_string(i));
}

TEST_F(HttpServerTest, SeesAClientGoWhileAHandlerWaits) {
  std::atomic<bool> entered = false, told = false;
  start([&](HttpExchange& exchange) {
    exchange.on_gone([&] { told = true; });
    entered = true;
    while (!exchange.gone()) std::this_thread::sleep_for(1ms);
  });
  HttpClient client(server_->port());
  client.send_request("POST", "/", "x");
  ASSERT_TRUE(wait_for([&] { return entered.load(); }));
  client.close();
  EXPECT_TRUE(wait_for([&] { return told.load(); }));
  EXPECT_TRUE(wait_for([&] {
    const std::lock_guard lock(mutex_);
    return log_.size() == 1 && !log_[0].complete;
  }));
}

TEST_F(HttpServerTest, StreamsInChunksAndStopsWhenTheClientGoes) {
  std::atomic<bool> stopped = false;
  start([&](HttpExchange& exchange) {
    exchange.begin(200, "text/event-stream");
    while (exchange.write("tick\n")) std::this_thread::sleep_for(1ms);
    stopped = true;
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  EXPECT_EQ(client.read_head().header("transfer-encoding"), "chunked");
  std::string piece;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client.read_chunk(piece));
  EXPECT_EQ(piece.substr(0, 5), "tick\n");
  client.close();
  EXPECT_TRUE(wait_for([&] { return stopped.load(); }));
}

TEST_F(HttpServerTest, AStreamThatIsNotEndedDoesNotLookWhole) {
  start([](HttpExchange& exchange) {
    exchange.begin(200, "text/plain");
    exchange.write("half");
  });
  EXPECT_EQ(HttpClient(server_->port()).request("GET", "/").status, 0);
}

TEST_F(HttpServerTest, HoldsBackAHandlerWhoseClientReadsNothing) {
  std::atomic<int64_t> written = 0;
  start([&](HttpExchange& exchange) {
    exchange.begin(200, "text/plain");
    const std::string block(64 << 10, 'x');
    while (exchange.write(block)) written += 64 << 10;
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  int64_t before = -1;
  ASSERT_TRUE(wait_for([&] {
    std::this_thread::sleep_for(100ms);
    return std::exchange(before, written.load()) == written.load();
  }));
  EXPECT_LT(written, 64 << 20);
}

TEST_F(HttpServerTest, RefusesBodiesAndHeadersBeyondTheLimits) {
  options_.body_bytes = 1 << 20;
  start(echo);
  HttpClient large(server_->port());
  // The whole body is sent, as most clients do, before the answer is read.
  EXPECT_EQ(large.request("POST", "/", std::string(8 << 20, 'x')).status, 413);
  HttpClient chunked(server_->port());
  chunked.send_raw("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string block = "40000\r\n" + std::string(0x40000, 'x') + "\r\n";
  for (int i = 0; i < 8; ++i) chunked.send_raw(block);
  EXPECT_EQ(chunked.read_response().status, 413);
  HttpClient header(server_->port());
  EXPECT_EQ(header.request("GET", "/", "", "X-Long: " + std::string(40 << 10, 'x') + "\r\n").status,
            431);
  EXPECT_EQ(HttpClient(server_->port()).request("GET", "/ok").status, 200);
}

TEST_F(HttpServerTest, RefusesWhatIsNoHttp) {
  start(echo);
  for (const char* text :
       {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "G\x01T / HTTP/1.1\r\n\r\n"}) {
    HttpClient client(server_->port());
    client.send_raw(text);
    const HttpResponse response = client.read_response();
    EXPECT_GE(response.status, 400) << text;
    EXPECT_LT(response.status, 500) << text;
    EXPECT_EQ(response.header("content-type"), "application/json") << text;
  }
}

TEST_F(HttpServerTest, HangsUpAfterABodyWhoseEndIsUnclear) {
  std::atomic<int> handled = 0;
  start([&](HttpExchange& exchange) {
    ++handled;
    echo(exchange);
  });
  const std::string smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const std::string method : {"GET", "POST", "DELETE"}) {
    for (const std::string field :
         {"identity", "chunked, chunked", "xchunked", "gzip", "gzip, chunked", "\"chunked\"", "",
          "chunked\r\nTransfer-Encoding: chunked", "identity\r\nContent-Length: 3",
          "chunked\r\nContent-Length: 3"}) {
      HttpClient client(server_->port());
      client.send_raw(method + " / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + field +
                      "\r\n\r\n" + smuggled);
      const int status = client.read_response().status;
      EXPECT_TRUE(status == 400 || status == 501) << method << " " << field << ": " << status;
      EXPECT_TRUE(client.closed_within(3000)) << method << " " << field;
    }
  }
  EXPECT_EQ(handled, 0);
  HttpClient chunked(server_->port());
  chunked.send_raw(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_response().body, "POST / ok");
}

TEST_F(HttpServerTest, GivesEveryStatusItsReason) {
  start([](HttpExchange& exchange) { exchange.send(529, "text/plain", "", {}); });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  EXPECT_EQ(client.read_head().reason, "Overloaded");
}

TEST_F(HttpServerTest, EndsRequestsThatArriveTooSlowly) {
  options_.header_timeout = 1s;
  options_.body_timeout = 1s;
  start(echo);
  HttpClient header(server_->port()), body(server_->port());
  header.send_raw("GET / HT");
  body.send_raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab");
  for (HttpClient* client : {&header, &body}) {
    EXPECT_EQ(client->read_response().status, 408);
    EXPECT_TRUE(client->closed_within(3000));
  }
}

TEST_F(HttpServerTest, ScreensARequestBeforeItsBody) {
  std::atomic<int> handled = 0;
  options_.screen = [](const HttpRequest& request) -> std::optional<HttpReply> {
    if (request.header("authorization") == "yes") return std::nullopt;
    return HttpReply{401, "text/plain", "no"};
  };
  start([&](HttpExchange& exchange) {
    ++handled;
    echo(exchange);
  });
  HttpClient client(server_->port());
  client.send_raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 401);
  EXPECT_EQ(handled, 0);
  HttpClient allowed(server_->port());
  EXPECT_EQ(allowed.request("POST", "/", "x", "authorization: yes\r\n").status, 200);
  // Without a body to skip, the connection stays.
  EXPECT_EQ(allowed.request("GET", "/").status, 401);
  EXPECT_EQ(allowed.request("GET", "/", "", "Authorization: yes\r\n").status, 200);
}

TEST_F(HttpServerTest, ContinuesWhenAskedTo) {
  start(echo);
  HttpClient client(server_->port());
  client.send_raw(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send_raw("ok");
  EXPECT_EQ(client.read_response().body, "POST / ok");
}

TEST_F(HttpServerTest, KeepsTheClientsRequestIdIfItIsOne) {
  start(echo);
  HttpClient client(server_->port());
  EXPECT_EQ(client.request("GET", "/", "", "X-Request-ID: mine-1\r\n").header("x-request-id"),
            "mine-1");
  const std::string made =
      client.request("GET", "/", "", "X-Request-ID: " + std::string(200, 'x') + "\r\n")
          .header("x-request-id");
  EXPECT_EQ(made.substr(0, 4), "req_");
}

TEST_F(HttpServerTest, DrainsWhatIsBeingAnswered) {
  std::atomic<bool> entered = false;
  start([&](HttpExchange& exchange) {
    entered = true;
    std::this_thread::sleep_for(300ms);
    echo(exchange);
  });
  HttpClient idle(server_->port()), busy(server_->port());
  busy.send_request("GET", "/late");
  ASSERT_TRUE(wait_for([&] { return entered.load(); }));
  std::thread drain([&] { EXPECT_TRUE(server_->drain(10s)); });
  EXPECT_EQ(busy.read_response().body, "GET /late ");
  EXPECT_TRUE(idle.closed_within(3000));
  busy.close();
  drain.join();
  EXPECT_FALSE(HttpClient(server_->port()).connected());
}

TEST_F(HttpServerTest, DrainsWithoutWaitingForRequestsThatHaveNotArrived) {
  start(echo);
  HttpClient header(server_->port()), body(server_->port()), refused(server_->port());
  header.send_raw("POST /a HTTP/1.1\r\nHost: te");
  body.send_raw("POST /b HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nhalf");
  refused.send_raw("nonsense\r\n\r\n");
  EXPECT_EQ(refused.read_response().status, 400);
  std::this_thread::sleep_for(50ms);
  const auto started = std::chrono::steady_clock::now();
  std::thread drain([&] { EXPECT_TRUE(server_->drain(30s)); });
  EXPECT_EQ(header.read_response().status, 503);
  EXPECT_EQ(body.read_response().status, 503);
  drain.join();
  EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
}

TEST_F(HttpServerTest, DrainsWithoutWaitingForAClientThatReadsNothing) {
  options_.last_write_timeout = 1s;
  std::atomic<int64_t> written = 0;
  start([&](HttpExchange& exchange) {
    exchange.begin(200, "text/plain", {});
    const std::string piece(100'000, 'x');
    while (exchange.write(piece)) ++written;
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/endless");
  int64_t before = -1;
  // Held back: nothing was written for a while.
  ASSERT_TRUE(wait_for([&] {
    std::this_thread::sleep_for(100ms);
    return std::exchange(before, written.load()) == written;
  }));
  const auto started = std::chrono::steady_clock::now();
  EXPECT_TRUE(server_->drain(30s));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 10s);
}

TEST_F(HttpServerTest, StopsWithHandlersAtWork) {
  std::atomic<int> entered = 0;
  start([&](HttpExchange& exchange) {
    ++entered;
    while (!exchange.gone()) std::this_thread::sleep_for(1ms);
  });
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    clients.back()->send_request("GET", "/");
  }
  ASSERT_TRUE(wait_for([&] { return entered == 8; }));
  server_->stop();
}

TEST_F(HttpServerTest, EndsADrainWhenItStops) {
  std::atomic<int> entered = 0;
  start([&](HttpExchange& exchange) {
    ++entered;
    while (!exchange.gone()) std::this_thread::sleep_for(1ms);
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  ASSERT_TRUE(wait_for([&] { return entered == 1; }));
  std::thread drain([&] { EXPECT_TRUE(server_->drain(30s)); });
  std::this_thread::sleep_for(20ms);
  server_->stop();
  drain.join();
}

TEST_F(HttpServerTest, SaysWhereItCannotListen) {
  start(echo);
  HttpServerOptions second = options_;
  second.port = server_->port();
  const auto refused = HttpServer::start(second);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Address already in use"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace cachalot
