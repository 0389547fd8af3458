// Malformed requests: each gets its status and an error of OpenAI's shape, and the next request is
// answered as if nothing had been.
#include <gtest/gtest.h>

#include "server_process.h"

namespace cachalot {
namespace {

using test::HttpClient;
using test::HttpResponse;
using test::text_at;

struct BadRequest {
  const char* path;
  std::string body;
  int status = 400;
  const char* param = "";  // of the error; "": null or any
};

// {"messages": [a greeting], EXTRA}
std::string chat_with(const std::string& extra) {
  return R"({"max_tokens": 4, "messages": [{"role": "user", "content": "Hello!"}], )" + extra + "}";
}
std::string messages(const std::string& list) {
  return R"({"max_tokens": 4, "messages": )" + list + "}";
}
std::string completion_with(const std::string& extra) {
  return R"({"prompt": "a", )" + extra + "}";
}
std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";

std::vector<BadRequest> bodies() {
  return {
      {kChat, ""},
      {kChat, "   "},
      {kChat, "{:"},
      {kChat, "[]"},
      {kChat, "null"},
      {kChat, "17"},
      {kChat, "\"text\""},
      {kChat, "{} {}"},
      {kChat, "{\"messages\": "},
      {kChat, repeated("[", 2000)},
      {kChat, "{\"a\": " + repeated("[", 400) + repeated("]", 400) + "}"},
      {kChat, "\xEF\xBB\xBF{}"},
      {kChat, "{\"messages\": \"\xE9\"}"},
      {kChat, std::string("{\"a\": \"\0\"}", 10)},
      {kChat, chat_with("\"temperature\": NaN")},
      {kChat, chat_with("\"temperature\": Infinity")},
      {kChat, chat_with("\"temperature\": 1e999")},
      {kChat, messages(R"([{"role": "user", "content": "\ud83d"}])")},
      {kChat, messages(R"([{"role": "user", "content": "\udc00x"}])")},
      {kChat, R"({"\ud83d": 1, "messages": []})"},
      {kChat, "model=nano&prompt=x"},
  };
}

std::vector<BadRequest> fields() {
  return {
      {kChat, "{}", 400, "messages"},
      {kChat, chat_with("\"model\": 7"), 400, "model"},
      {kChat, chat_with("\"model\": \"gpt-99\""), 404, "model"},
      {kChat, chat_with("\"temperature\": \"x\""), 400, "temperature"},
      {kChat, chat_with("\"temperature\": -0.1"), 400, "temperature"},
      {kChat, chat_with("\"temperature\": 2.1"), 400, "temperature"},
      {kChat, chat_with("\"temperature\": [1]"), 400, "temperature"},
      {kChat, chat_with("\"top_p\": 1.01"), 400, "top_p"},
      {kChat, chat_with("\"top_p\": -1"), 400, "top_p"},
      {kChat, chat_with("\"min_p\": 2"), 400, "min_p"},
      {kChat, chat_with("\"top_k\": 1.5"), 400, "top_k"},
      {kChat, chat_with("\"top_k\": -2"), 400, "top_k"},
      {kChat, chat_with("\"presence_penalty\": 3"), 400, "presence_penalty"},
      {kChat, chat_with("\"frequency_penalty\": -3"), 400, "frequency_penalty"},
      {kChat, chat_with("\"repetition_penalty\": 0"), 400, "repetition_penalty"},
      {kChat, chat_with("\"seed\": 9223372036854775808"), 400, "seed"},
      {kChat, chat_with("\"seed\": \"7\""), 400, "seed"},
      {kChat, chat_with("\"max_tokens\": 0"), 400, "max_tokens"},
      {kChat, chat_with("\"max_tokens\": -1"), 400, "max_tokens"},
      {kChat, chat_with("\"max_tokens\": 1.5"), 400, "max_tokens"},
      {kChat, chat_with("\"max_tokens\": 99999999999999999999999"), 400, "max_tokens"},
      {kChat, chat_with("\"max_completion_tokens\": \"many\""), 400, "max_completion_tokens"},
      {kChat, chat_with("\"n\": 0"), 400, "n"},
      {kChat, chat_with("\"n\": 129"), 400, "n"},
      {kChat, chat_with("\"n\": 1000000"), 400, "n"},
      {kChat, chat_with("\"stop\": \"\""), 400, "stop"},
      {kChat, chat_with("\"stop\": 5"), 400, "stop"},
      {kChat, chat_with("\"stop\": [\"a\", 7]"), 400, "stop[1]"},
      {kChat, chat_with("\"stop\": [" + repeated("\"x\",", 16) + "\"x\"]"), 400, "stop"},
      {kChat, chat_with("\"stop_token_ids\": [200001]"), 400, "stop_token_ids[0]"},
      {kChat, chat_with("\"stop_token_ids\": [-1]"), 400, "stop_token_ids[0]"},
      {kChat, chat_with("\"stop_token_ids\": 5"), 400, "stop_token_ids"},
      {kChat, chat_with("\"logit_bias\": {\"9999999\": 5}"), 400, "logit_bias"},
      {kChat, chat_with("\"logit_bias\": {\"abc\": 1}"), 400, "logit_bias"},
      {kChat, chat_with("\"logit_bias\": {\"5\": 101}"), 400, "logit_bias.5"},
      {kChat, chat_with("\"logit_bias\": [5]"), 400, "logit_bias"},
      {kChat, chat_with("\"logprobs\": 3"), 400, "logprobs"},
      {kChat, chat_with("\"logprobs\": true, \"top_logprobs\": 9999"), 400, "top_logprobs"},
      {kChat, chat_with("\"top_logprobs\": 3"), 400, "top_logprobs"},
      {kChat, chat_with("\"stream\": \"yes\""), 400, "stream"},
      {kChat, chat_with("\"stream_options\": {\"include_usage\": true}"), 400, "stream_options"},
      {kChat, chat_with("\"stream\": true, \"stream_options\": 1"), 400, "stream_options"},
      {kChat, chat_with("\"thinking\": \"on\""), 400, "thinking"},
      {kChat, chat_with("\"thinking\": {\"type\": \"maybe\"}"), 400, "thinking.type"},
      {kChat, chat_with("\"reasoning_effort\": \"huge\""), 400, "reasoning_effort"},
      {kChat, chat_with("\"reasoning_effort\": 0"), 400, "reasoning_effort"},
      {kChat, chat_with("\"reasoning_effort\": true"), 400, "reasoning_effort"},
      {kChat, chat_with("\"response_format\": \"json\""), 400, "response_format"},
      {kChat, chat_with("\"response_format\": {\"type\": \"xml\"}"), 400, "response_format.type"},
      {kChat, chat_with("\"response_format\": {\"type\": \"json_schema\"}"), 400,
       "response_format.json_schema"},
      {kChat,
       chat_with(R"("response_format": {"type": "json_schema", "json_schema": {"schema": 5}})"),
       400, "response_format.json_schema.schema"},
      {kChat, chat_with(R"("response_format": {"type": "json_schema",
                           "json_schema": {"name": 5, "schema": {}}})"),
       400, "response_format.json_schema.name"},
      {kChat, chat_with(R"("response_format": {"type": "json_schema",
                           "json_schema": {"strict": "y", "schema": {}}})"),
       400, "response_format.json_schema.strict"},
      {kChat, chat_with("\"metadata\": 5"), 400, "metadata"},
      {kChat, chat_with("\"user\": 5"), 400, "user"},
      {kChat, chat_with(R"("guided_json": {"type": "nothing"})"), 400, "guided_json"},
      {kChat, chat_with(R"("structured_outputs": {"json": {"not": {}}})"), 400,
       "structured_outputs.json"},
      {kChat,
       chat_with(
           R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}})"),
       400, "response_format"},
      {kChat, chat_with(R"("guided_json": "{")"), 400, "guided_json"},
      {kChat, chat_with(R"("guided_regex": "(")"), 400, "guided_regex"},
      {kChat, chat_with(R"("guided_grammar": "root ::= (")"), 400, "guided_grammar"},
      {kChat, chat_with(R"("guided_choice": ["\ud83d"])"), 400},
      {kChat, chat_with(R"("guided_choice": [])"), 400, "guided_choice"},
      {kChat, chat_with(R"("guided_choice": ["a"], "guided_regex": "b")"), 400, "guided_choice"},
      {kChat, chat_with("\"priority\": \"high\""), 400, "priority"},
      {kChat, chat_with("\"timeout\": 0"), 400, "timeout"},
      {kChat, chat_with("\"prefill\": \"shortcut\"")},
      {kChat, chat_with("\"functions\": []"), 400, "functions"},
      {kText, "{}", 400, "prompt"},
      {kText, R"({"prompt": 5})", 400, "prompt"},
      {kText, R"({"prompt": []})", 400, "prompt"},
      {kText, R"({"prompt": [-1]})", 400, "prompt[0]"},
      {kText, R"({"prompt": [2048]})", 400, "prompt[0]"},
      {kText, R"({"prompt": [1.5]})", 400, "prompt[0]"},
      {kText, R"({"prompt": [1, "a"]})", 400, "prompt[1]"},
      {kText, R"({"prompt": ["a", 1]})", 400, "prompt[1]"},
      {kText, R"({"prompt": [[]]})", 400, "prompt[0]"},
      {kText, completion_with("\"logprobs\": 21"), 400, "logprobs"},
      {kText, completion_with("\"max_tokens\": 0"), 400, "max_tokens"},
      {kText, completion_with("\"echo\": 1"), 400, "echo"},
      {kText, completion_with("\"best_of\": 4"), 400, "best_of"},
      {kText, R"({"prompt": [5], "suffix": "x"})", 400, "suffix"},
      {kText, R"({"prompt": [)" + repeated("\"a\", ", 99) + R"("a"], "n": 11})", 400, "prompt"},
      {"/completion", "{}", 400, "prompt"},
      {"/completion", R"({"prompt": "a", "n_predict": -3})", 400, "n_predict"},
      {"/completion", R"({"prompt": "a", "n_predict": "x"})", 400, "n_predict"},
      {"/completion", R"({"prompt": "a", "n_probs": 21})", 400, "n_probs"},
      {"/completion", R"({"prompt": "a", "logit_bias": [5]})", 400, "logit_bias[0]"},
      {"/completion", R"({"prompt": "a", "logit_bias": [["a", 1]]})", 400, "logit_bias[0]"},
      {"/completion", R"({"prompt": "a", "return_tokens": 5})", 400, "return_tokens"},
      {"/infill", R"({"input_suffix": "a"})", 400, "input_prefix"},
      {"/infill", R"({"input_prefix": "a"})", 400, "input_suffix"},
      {"/infill", R"({"input_prefix": "a", "input_suffix": "b", "input_extra": [5]})", 400,
       "input_extra[0]"},
      {"/v1/tokenize", "{}", 400, "prompt"},
      {"/v1/detokenize", "{}", 400, "tokens"},
      {"/v1/detokenize", R"({"tokens": [99999]})", 400, "tokens[0]"},
      {"/v1/apply-template", R"({"messages": []})", 400, "messages"},
  };
}

std::vector<BadRequest> conversations() {
  const auto call = [](const char* id) {
    return std::string(R"({"id": ")") + id +
           R"(", "type": "function", "function": {"name": "f", "arguments": "{}"}})";
  };
  const std::string user = R"({"role": "user", "content": "x"})";
  const auto calling = [&](const std::string& calls) {
    return "[" + user + R"(, {"role": "assistant", "content": null, "tool_calls": [)" + calls +
           "]}";
  };
  const auto tool = [](const std::string& extra) {
    return chat_with(R"("tools": [{"type": "function", "function": {"name": "f", )" + extra +
                     "}}]");
  };
  return {
      {kChat, tool(R"("description": 5)"), 400, "tools[0].function.description"},
      {kChat, tool(R"("strict": "yes")"), 400, "tools[0].function.strict"},
      {kChat, tool(R"("parameters": 5)"), 400, "tools[0].function.parameters"},
      {kChat, tool(R"("parameters": "x")"), 400, "tools[0].function.parameters"},
      {kChat, tool(R"("parameters": [1])"), 400, "tools[0].function.parameters"},
      {kChat, tool(R"("parameters": {"type": 5})"), 400, "tools[0].function.parameters.type"},
      {kChat, tool(R"("parameters": {"type": "array"})"), 400, "tools[0].function.parameters.type"},
      {kChat, tool(R"("parameters": {"properties": 3})"), 400,
       "tools[0].function.parameters.properties"},
      {kChat, tool(R"("parameters": {"properties": {"a": 3}})"), 400,
       "tools[0].function.parameters.properties.a"},
      {kChat, tool(R"("parameters": {"required": "a"})"), 400,
       "tools[0].function.parameters.required"},
      {kChat, tool(R"("strict": true, "parameters": {"properties": {"a": {"not": {}}}})"), 400,
       "tools"},
      {kChat, chat_with(R"("tools": [{"strict": 1, "function": {"name": "f"}}])"), 400,
       "tools[0].strict"},
      {kChat, chat_with(R"("tools": [{"function": 5}])"), 400, "tools[0].function"},
      {kChat,
       tool(R"("parameters": {"anyOf": [{"type": "array"}]})")
           .insert(1, R"("tool_choice": "required",)"),
       400, "tools"},
      {kChat, messages("[" + user + R"(, {"role": "assistant", "content": "a", "prefix": "z"}])"),
       400, "messages[1].prefix"},
      {kChat, messages(R"([{"role": "user", "content": "x", "prefix": "z"}])"), 400,
       "messages[0].prefix"},
      {kChat, messages("\"hello\""), 400, "messages"},
      {kChat, messages("[]"), 400, "messages"},
      {kChat, messages("[{}]")},
      {kChat, messages("[7]"), 400, "messages[0]"},
      {kChat, messages(R"([{"role": "robot", "content": "x"}])"), 400, "messages[0].role"},
      {kChat, messages(R"([{"role": 7, "content": "x"}])"), 400, "messages[0].role"},
      {kChat, messages(R"([{"role": "user", "content": 7}])"), 400, "messages[0].content"},
      {kChat, messages(R"([{"role": "user", "content": null}])"), 400, "messages[0].content"},
      {kChat, messages(R"([{"role": "user"}])"), 400, "messages[0].content"},
      {kChat, messages(R"([{"role": "user", "content": ["x"]}])"), 400, "messages[0].content[0]"},
      {kChat, messages(R"([{"role": "user", "content": [{"type": "text"}]}])"), 400,
       "messages[0].content[0].text"},
      {kChat, messages(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"), 400,
       "messages[0].content[0].type"},
      {kChat, messages(R"([{"role": "system", "content": "only this"}])"), 400, "messages[0]"},
      {kChat, messages("[" + user + R"(, {"role": "assistant"}, )" + user + "]"), 400,
       "messages[1].content"},
      {kChat, messages("[" + user + R"(, {"role": "assistant", "content": null}, )" + user + "]"),
       400, "messages[1].content"},
      {kChat,
       messages("[" + user + R"(, {"role": "assistant", "content": "a", "prefix": true}, )" + user +
                "]"),
       400, "messages[1].prefix"},
      {kChat, messages(R"([{"role": "tool", "tool_call_id": "a", "content": "x"}])"), 400,
       "messages[0]"},
      {kChat, messages("[" + user + R"(, {"role": "tool", "tool_call_id": "a", "content": "x"}])"),
       400, "messages[1]"},
      {kChat, messages(calling("") + ", " + user + "]"), 400, "messages[1].content"},
      {kChat, messages("[" + user + R"(, {"role": "assistant", "content": "a", "tool_calls": 5}])"),
       400, "messages[1].tool_calls"},
      {kChat, messages(calling(R"({"id": "a", "type": "custom"})") + "]"), 400,
       "messages[1].tool_calls[0].type"},
      {kChat, messages(calling(R"({"id": "a", "function": {"name": "f", "arguments": 5}})") + "]"),
       400, "messages[1].tool_calls[0].function.arguments"},
      {kChat, messages(calling(call("a")) + "]"), 400, "messages[1].tool_calls"},
      {kChat, messages(calling(call("a")) + ", " + user + "]"), 400, "messages[1].tool_calls"},
      {kChat, messages(calling(call("a") + "," + call("a")) + "]"), 400,
       "messages[1].tool_calls[1].id"},
      {kChat,
       messages(calling(call("a")) + R"(, {"role": "tool", "tool_call_id": "b", "content": ""}])"),
       400, "messages[2].tool_call_id"},
      {kChat, messages(calling(call("a")) + R"(, {"role": "tool", "content": ""}])"), 400,
       "messages[2].tool_call_id"},
      {kChat, messages(calling(R"({"id": "a", "function": {}})") +
                       R"(, {"role": "tool", "tool_call_id": "a", "content": ""}])")},
      {kChat, chat_with(R"("tools": {})"), 400, "tools"},
      {kChat, chat_with(R"("tools": [{"type": "custom"}])"), 400, "tools[0].type"},
      {kChat, chat_with(R"("tools": [{"type": "function"}])"), 400, "tools[0].function.name"},
      {kChat, chat_with(R"("tools": [{"function": {"name": ""}}])"), 400, "tools[0].function.name"},
      {kChat, chat_with(R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
       400, "tools[1].function.name"},
      {kChat, chat_with("\"tool_choice\": \"required\""), 400, "tool_choice"},
      {kChat, chat_with("\"tool_choice\": \"sometimes\""), 400, "tool_choice"},
      {kChat,
       chat_with(std::string(kTools) +
                 R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})"),
       400, "tool_choice"},
      {kChat, messages(R"([{"role": "user", "content": [{"type": "image_url",
        "image_url": {"url": "data:image/png;base64,AA=="}}]}])")},
      {kChat, messages(R"([{"role": "user", "content": ")" + repeated("word ", 9000) + "\"}]"),
       400},
  };
}

class ServeErrorsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.wait_until_ready()) << server_.log(); }

  void expect_error(const HttpResponse& response, int status, const std::string& param,
                    const std::string& what) {
    EXPECT_EQ(response.status, status) << what << "\n" << response.body;
    EXPECT_EQ(response.header("content-type"), "application/json") << what;
    const Json json = server_.json(response);
    EXPECT_NE(text_at(json, "error.message").front(), '<') << what << "\n" << response.body;
    EXPECT_NE(text_at(json, "error.type").front(), '<') << what;
    EXPECT_NE(text_at(json, "error.code").front(), '<') << what;
    if (!param.empty()) {
      EXPECT_EQ(text_at(json, "error.param"), param) << what << "\n" << response.body;
    }
  }
  void expect_alive() {
    const HttpResponse response =
        server_.post(kChat, R"({"temperature": 0, "thinking": {"type": "disabled"},
                              "messages": [{"role": "user", "content": "Hello!"}]})");
    EXPECT_EQ(text_at(server_.json(response), "choices.0.message.content"),
              "Hello! How can I help you?")
        << response.body << server_.log();
  }
  void run(const std::vector<BadRequest>& table) {
    for (const BadRequest& bad : table) {
      const std::string what = std::string(bad.path) + " " + bad.body.substr(0, 300);
      expect_error(server_.post(bad.path, bad.body), bad.status, bad.param, what);
    }
    EXPECT_TRUE(server_.running());
    expect_alive();
  }

  test::ServerProcess server_{{"--log-format", "none"}};
};

TEST_F(ServeErrorsTest, RefusesBodies) { run(bodies()); }
TEST_F(ServeErrorsTest, RefusesFields) { run(fields()); }
TEST_F(ServeErrorsTest, RefusesConversations) { run(conversations()); }

TEST_F(ServeErrorsTest, ATooLongPromptHasACodeOfItsOwn) {
  const HttpResponse response = server_.post(
      kChat, messages(R"([{"role": "user", "content": ")" + repeated("word ", 9000) + "\"}]"));
  EXPECT_EQ(text_at(server_.json(response), "error.code"), "context_length_exceeded")
      << response.body;
}

// However long the tokens are, they are too many: nothing is encoded to find out.
TEST_F(ServeErrorsTest, ATextThatCannotFitIsRefusedUnread) {
  const std::string text = repeated("word ", 1'000'000);
  for (const BadRequest& bad : std::vector<BadRequest>{
           {kChat, messages(R"([{"role": "user", "content": ")" + text + "\"}]")},
           {kText, R"({"prompt": ")" + text + "\"}"},
           {"/v1/responses", R"({"input": ")" + text + "\"}"}}) {
    const HttpResponse response = server_.post(bad.path, bad.body);
    EXPECT_EQ(text_at(server_.json(response), "error.code"), "context_length_exceeded");
    EXPECT_NE(response.body.find("bytes of text"), std::string::npos) << response.body;
  }
}

TEST_F(ServeErrorsTest, TakesHistoriesAsOtherServersWriteThem) {
  const auto prompt = [&](const std::string& assistant) {
    const HttpResponse response =
        server_.post("/v1/apply-template",
                     messages(R"([{"role": "user", "content": "a"}, {"role": "assistant", )" +
                              assistant + R"(}, {"role": "user", "content": "b"}])"));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.body;
  };
  const std::string reasoning = R"("reasoning_content": "Hm.")";
  const std::string empty = prompt(reasoning + R"(, "content": "")");
  EXPECT_EQ(prompt(reasoning), empty);
  EXPECT_EQ(prompt(reasoning + R"(, "content": null)"), empty);
  EXPECT_EQ(prompt(R"("content": "x", "tool_calls": [])"), prompt(R"("content": "x")"));
}

TEST_F(ServeErrorsTest, ReturnsTheTokensOfACompletion) {
  const std::string ask = R"({"prompt": "The capital of France is", "temperature": 0, "grammar": "",
                              "n_predict": 3, "return_tokens": true})";
  const HttpResponse response = server_.post("/completion", ask);
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = server_.json(response);
  ASSERT_TRUE(json.find("tokens")->array());
  EXPECT_EQ(json.find("tokens")->array()->size(), 3);
}

TEST_F(ServeErrorsTest, RefusesPathsAndMethods) {
  expect_error(server_.get("/v1/nothing"), 404, "", "unknown path");
  expect_error(server_.get("/v1/models/other"), 404, "model", "unknown model");
  const HttpResponse method = server_.get(kChat);
  expect_error(method, 405, "", "wrong method");
  EXPECT_EQ(method.header("allow"), "POST");
  expect_error(HttpClient(server_.port()).request("DELETE", kText), 405, "", "DELETE");
  expect_error(server_.post("/v1/models", "{}"), 405, "", "POST /v1/models");
  for (const char* path : {"/", "/health", "/v1/health", "/ping", "/version", "/v1/models",
                           "/v1/models/nano", "/metrics", "/slots", "/v1/props"}) {
    for (const char* other : {"POST", "PUT", "DELETE", "PATCH"}) {
      const HttpResponse refused = HttpClient(server_.port()).request(other, path);
      expect_error(refused, 405, "", std::string(other) + " " + path);
      EXPECT_EQ(refused.header("allow"), "GET, HEAD") << path;
    }
    EXPECT_EQ(HttpClient(server_.port()).request("HEAD", path).status, 200) << path;
  }
  for (const char* other : {"GET", "HEAD", "PUT"}) {
    const HttpResponse refused = HttpClient(server_.port()).request(other, "/v1/messages");
    EXPECT_EQ(refused.status, 405);
    EXPECT_EQ(refused.header("allow"), "POST");
  }
  expect_error(server_.get("/../../etc/passwd"), 404, "", "a path upwards");
  expect_error(server_.get("/%00"), 404, "", "a zero");
  expect_alive();
}

TEST_F(ServeErrorsTest, ContinuesReasoningThatHasNoContentYet) {
  const HttpResponse response =
      server_.post(kChat, messages(R"([{"role": "user", "content": "Hello!"},
                          {"role": "assistant", "reasoning_content": "The user"}])"));
  EXPECT_EQ(response.status, 200) << response.body << server_.log();
}

TEST_F(ServeErrorsTest, TakesAProxysTargetsAndWantsAHost) {
  EXPECT_EQ(server_.get("http://example.org:80/health").status, 200);
  EXPECT_EQ(server_.get("http://example.org").status, 200);
  EXPECT_EQ(server_.get("http://example.org/v1/models?a=http://b/c").status, 200);
  expect_error(server_.get("http://example.org/nothing"), 404, "", "absolute");
  expect_error(server_.get("/health", "Host: b\r\n"), 400, "", "two hosts");
  HttpClient nameless(server_.port());
  nameless.send_raw("GET /health HTTP/1.1\r\n\r\n");
  expect_error(nameless.read_response(), 400, "", "no host");
  HttpClient old(server_.port());
  old.send_raw("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_response().status, 200);
}

TEST_F(ServeErrorsTest, RefusesAHundredMegabytes) {
  const std::string body =
      messages(R"([{"role": "user", "content": ")" + std::string(100 << 20, 'x') + "\"}]");
  expect_error(server_.post(kChat, body), 413, "", "100 MB");
  expect_alive();
}

TEST_F(ServeErrorsTest, AnswersPipelinedRequestsGoodAndBad) {
  HttpClient client(server_.port());
  for (int i = 0; i < 5; ++i) {
    client.send_request("POST", kChat, "{:");
    client.send_request("GET", "/v1/models");
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.read_response().status, 400);
    EXPECT_EQ(client.read_response().status, 200);
  }
}

TEST_F(ServeErrorsTest, ManySlowClientsKeepNobodyWaiting) {
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server_.port()));
    slow.back()->send_raw(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n");
    if (i % 2 == 0) slow.back()->send_raw("\r\n{");
  }
  expect_alive();
}

TEST_F(ServeErrorsTest, ABadRequestChangesNothingForItsNeighbour) {
  const std::string good = R"({"temperature": 0, "max_tokens": 60,
      "messages": [{"role": "user", "content": "Tell me a story about Tom the fox."}]})";
  const std::string alone =
      text_at(server_.json(server_.post(kChat, good)), "choices.0.message.content");
  HttpClient beside(server_.port());
  beside.send_request("POST", kChat, good);
  for (const BadRequest& bad : fields()) server_.post(bad.path, bad.body);
  const HttpResponse response = beside.read_response();
  EXPECT_EQ(text_at(server_.json(response), "choices.0.message.content"), alone);
}

}  // namespace
}  // namespace cachalot
