// What serving costs: sixteen streams of one server against one stream of it, and against the steps
// of 16 rows that `cachalot bench` measures, drafts off. Best of several rounds, in turns, since a
// machine is never quite idle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "server_process.h"

namespace cachalot {
namespace {

using test::HttpClient;
using test::HttpResponse;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr int kTokens = 400;
constexpr int kStreams = 16;

// Tokens per second of that many streams together.
double rate_of(const test::ServerProcess& server, int streams) {
  std::vector<std::thread> clients;
  const auto start = Clock::now();
  for (int i = 0; i < streams; ++i) {
    clients.emplace_back([&server, i] {
      HttpClient client(server.port(), 120);
      client.send_request(
          "POST", "/v1/completions",
          R"({"prompt": "Tell me a story about number )" + std::to_string(i) +
              R"(.", "ignore_eos": true, "temperature": 0.8, "stream": true, "seed": )" +
              std::to_string(i) + ", \"max_tokens\": " + std::to_string(kTokens) + "}");
      const HttpResponse response = client.read_response();
      EXPECT_EQ(response.status, 200) << response.body;
      EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
    });
  }
  for (std::thread& client : clients) client.join();
  return streams * kTokens / std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens per second of the steps alone, at the positions where the streams are halfway.
double bench_rate() {
  const std::string command = std::string(CACHALOT_PROGRAM) +
                              " bench -m " CACHALOT_SOURCE_DIR
                              "/models/nano --threads 1 --phases decode --tokens " +
                              std::to_string(kStreams) + " --contexts " +
                              std::to_string(kTokens / 2) + " --filter 'step/*' --seconds 1 --json";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) text.append(piece, count);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  const auto report = parse_json(text);
  const Json seconds = report ? test::at(*report, "rows.0.best_seconds") : Json();
  EXPECT_TRUE(seconds.real()) << text;
  return seconds.real() ? kStreams / *seconds.real() : 0;
}

TEST(ServeThroughput, SixteenStreamsKeepTheEngineBusy) {
  test::ServerProcess server({"--log-format", "none", "--drafts", "off"});
  ASSERT_TRUE(server.wait_until_ready()) << server.log();
  rate_of(server, kStreams);  // the engine's memory is touched once
  double one = 0, sixteen = 0, steps = 0;
  for (int round = 0; round < kRounds; ++round) {
    one = std::max(one, rate_of(server, 1));
    sixteen = std::max(sixteen, rate_of(server, kStreams));
    steps = std::max(steps, bench_rate());
  }
  std::printf(
      "1 stream %.0f tokens/s, 16 streams %.0f (%.2f times), bench's steps of 16 rows %.0f "
      "(%.0f %% of it)\n",
      one, sixteen, sixteen / one, steps, 100 * sixteen / steps);
  EXPECT_GE(sixteen, 2 * one);
  EXPECT_GE(sixteen, 0.8 * steps);
}

}  // namespace
}  // namespace cachalot
