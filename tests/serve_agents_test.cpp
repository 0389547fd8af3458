// /v1/messages and /v1/responses of the program: whole and streamed, errors in the shape of each,
// clients that go away.
#include <gtest/gtest.h>

#include "server_process.h"

namespace cachalot {
namespace {

using test::HttpClient;
using test::HttpResponse;
using test::text_at;

constexpr const char* kAnswer = "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture.";

class ServeAgents : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new test::ServerProcess({"--api-key", "secret"});
    ASSERT_TRUE(server_->wait_until_ready()) << server_->log();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  static HttpResponse post(const std::string& path, const std::string& body,
                           const std::string& headers = "x-api-key: secret\r\n") {
    return server_->post(path, body, headers);
  }
  static Json json(const HttpResponse& response) { return server_->json(response); }

  static test::ServerProcess* server_;
};
test::ServerProcess* ServeAgents::server_ = nullptr;

std::string ask(const std::string& members) {
  return R"({"max_tokens": 60, "temperature": 0, "messages": [{"role": "user",
             "content": "Who are you?"}])" +
         members + "}";
}
std::string respond(const std::string& members) {
  return R"({"temperature": 0, "input": "Who are you?")" + members + "}";
}

TEST_F(ServeAgents, AnswersAnthropicsInterfaceUnderAllItsPaths) {
  for (const char* path : {"/v1/messages", "/messages", "/anthropic/v1/messages"}) {
    const Json message = json(post(path, ask(R"(, "thinking": {"type": "disabled"})")));
    EXPECT_EQ(text_at(message, "content.0.text"), kAnswer) << path;
    EXPECT_EQ(text_at(message, "stop_reason"), "end_turn");
  }
}

TEST_F(ServeAgents, StreamsTheMessageThatItAnswersWhole) {
  const HttpResponse streamed = post("/v1/messages", ask(R"(, "stream": true)"));
  EXPECT_EQ(streamed.header("content-type"), "text/event-stream");
  EXPECT_TRUE(streamed.body.starts_with("event: message_start\ndata: {")) << streamed.body;
  std::string text, thinking, last;
  for (const Json& event : test::events_of(streamed.body)) {
    if (const Json* delta = event.find("delta")) {
      if (const Json* more = delta->find("text")) text += *more->string();
      if (const Json* more = delta->find("thinking")) thinking += *more->string();
    }
    last = text_at(event, "type");
  }
  const Json whole = json(post("/v1/messages", ask("")));
  EXPECT_EQ(thinking, text_at(whole, "content.0.thinking"));
  EXPECT_EQ(text, text_at(whole, "content.1.text"));
  EXPECT_EQ(last, "message_stop");
}

TEST_F(ServeAgents, StreamsTheResponseThatItAnswersWhole) {
  const HttpResponse streamed = post("/v1/responses", respond(R"(, "stream": true)"));
  const std::vector<Json> events = test::events_of(streamed.body);
  ASSERT_FALSE(events.empty()) << streamed.body;
  EXPECT_EQ(text_at(events.front(), "type"), "response.created");
  EXPECT_EQ(text_at(events.back(), "type"), "response.completed");
  const Json whole = json(post("/v1/responses", respond("")));
  for (const char* path : {"output.0.content.0.text", "output.1.content.0.text", "status"})
    EXPECT_EQ(text_at(events.back(), std::string("response.") + path), text_at(whole, path));
  EXPECT_EQ(text_at(whole, "output.1.content.0.text"), kAnswer);
}

TEST_F(ServeAgents, CountsTokens) {
  EXPECT_EQ(test::number_at(json(post("/v1/messages/count_tokens", ask(""))), "input_tokens"), 36);
  EXPECT_EQ(test::number_at(json(post("/v1/responses/input_tokens", respond(""))), "input_tokens"),
            36);
}

TEST_F(ServeAgents, RefusesInTheShapeOfEachInterface) {
  struct Refused {
    std::string body;
    int status;
    const char* type;
    std::string headers = "Authorization: Bearer secret\r\n";
  };
  const std::vector<Refused> cases = {
      {"", 400, "invalid_request_error"},
      {"[]", 400, "invalid_request_error"},
      {"{\"messages\": ", 400, "invalid_request_error"},
      {"{\"messages\": \"\xE9\"}", 400, "invalid_request_error"},
      {R"({"input": "\ud800"})", 400, "invalid_request_error"},
      {ask(R"(, "model": "other")"), 400, "invalid_request_error"},
      {ask(R"(, "tool_choice": {"type": "any"})"), 400, "invalid_request_error"},
      {ask(R"(, "output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}})"), 400,
       "invalid_request_error"},
      {ask(R"(, "messages": [{"role": "user", "content": [{"type": "image", "source":
              {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])"),
       400, "invalid_request_error"},
      {ask(""), 401, "authentication_error", ""},
      {ask(""), 401, "authentication_error", "x-api-key: wrong\r\n"},
      {ask(""), 415, "invalid_request_error", "x-api-key: secret\r\nContent-Encoding: gzip\r\n"},
  };
  for (const Refused& refused : cases) {
    const HttpResponse response = post("/v1/messages", refused.body, refused.headers);
    const Json error = json(response);
    EXPECT_EQ(response.status, refused.status) << refused.body << response.body;
    EXPECT_EQ(text_at(error, "type"), "error") << response.body;
    EXPECT_EQ(text_at(error, "error.type"), refused.type) << response.body;
    EXPECT_EQ(text_at(error, "request_id"), response.header("request-id"));
  }
  EXPECT_EQ(text_at(json(server_->get("/v1/messages", "x-api-key: secret\r\n")), "type"), "error");
  EXPECT_EQ(text_at(json(post("/v1/messages/batches", "{}")), "error.type"), "not_found_error");
  const HttpResponse stored = post("/v1/responses", respond(R"(, "previous_response_id": "r")"));
  EXPECT_EQ(stored.status, 400);
  EXPECT_EQ(text_at(json(stored), "error.param"), "previous_response_id");
}

TEST_F(ServeAgents, StopsForAClientThatGoesAway) {
  const std::string story = R"({"max_tokens": 4000, "stream": true, "temperature": 0, "messages":
      [{"role": "user", "content": "Tell me a story about Tom the fox, a key and the forest."}]})";
  for (int i = 0; i < 4; ++i) {
    HttpClient client(server_->port());
    client.send_request("POST", "/v1/messages", story, "x-api-key: secret\r\n");
    client.close();
  }
  bool idle = false;
  for (int i = 0; i < 400 && !idle; ++i) {
    const std::string text = server_->get("/metrics", "x-api-key: secret\r\n").body;
    idle = text.find("\nllamacpp:requests_processing 0") != text.npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(idle);
}

}  // namespace
}  // namespace cachalot
