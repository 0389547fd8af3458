// `cachalot serve` as a client meets it: answers, streams, disconnects, keys, its end.
#include <gtest/gtest.h>

#include "program_test.h"
#include "server_process.h"

namespace cachalot {
namespace {

using test::at;
using test::events_of;
using test::HttpClient;
using test::HttpResponse;
using test::number_at;
using test::text_at;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

// {"temperature": 0, "messages": [one of the user], EXTRA}
std::string ask(const std::string& question, const std::string& extra = "") {
  return R"({"temperature": 0, "messages": [{"role": "user", "content": ")" + question + "\"}]" +
         (extra.empty() ? "" : ", ") + extra + "}";
}
constexpr const char* kNoThinking = R"("thinking": {"type": "disabled"})";
constexpr const char* kWeather =
    R"("tools": [{"type": "function", "function": {"name": "get_weather",
  "description": "Get the weather", "parameters": {"type": "object", "properties": {"city": {"type":
  "string"}}, "required": ["city"]}}}])";

class ServeTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.wait_until_ready()) << server_.log(); }

  Json chat(const std::string& body) {
    const HttpResponse response = server_.post(kChat, body);
    EXPECT_EQ(response.status, 200) << response.body << server_.log();
    return server_.json(response);
  }
  std::string content(const std::string& body) {
    return text_at(chat(body), "choices.0.message.content");
  }
  // What a stream's deltas add up to.
  struct Streamed {
    std::string reasoning, content, arguments, call_id, call_name, finish;
    bool done = false;
    Json usage;
  };
  Streamed stream(const std::string& path, std::string body) {
    body.insert(1, "\"stream\": true, ");
    const HttpResponse response = server_.post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.header("content-type"), "text/event-stream");
    Streamed result;
    for (const Json& event : events_of(response.body)) {
      if (event.string()) {
        result.done = true;
        continue;
      }
      const auto add = [&](std::string& to, const char* key) {
        const Json value = at(event, std::string("choices.0.") + key);
        if (value.string()) to += *value.string();
      };
      add(result.reasoning, "delta.reasoning_content");
      add(result.content, "delta.content");
      add(result.content, "text");
      add(result.arguments, "delta.tool_calls.0.function.arguments");
      add(result.call_id, "delta.tool_calls.0.id");
      add(result.call_name, "delta.tool_calls.0.function.name");
      add(result.finish, "finish_reason");
      if (event.find("usage") && event.find("usage")->object()) result.usage = *event.find("usage");
    }
    return result;
  }

  test::ServerProcess server_;
};

TEST_F(ServeTest, AnswersAChatWithAndWithoutThinking) {
  const Json plain = chat(ask("Hello!", kNoThinking));
  EXPECT_EQ(text_at(plain, "choices.0.message.content"), "Hello! How can I help you?");
  EXPECT_EQ(text_at(plain, "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(plain, "object"), "chat.completion");
  EXPECT_EQ(text_at(plain, "model"), "nano");
  EXPECT_EQ(number_at(plain, "usage.prompt_tokens"), 6);
  EXPECT_EQ(number_at(plain, "usage.completion_tokens"), 9);
  EXPECT_EQ(number_at(plain, "usage.total_tokens"), 15);
  const Json thinking = chat(ask("Who are you?"));
  EXPECT_EQ(text_at(thinking, "choices.0.message.reasoning_content"),
            "The user asks who I am. I say it.");
  EXPECT_EQ(text_at(thinking, "choices.0.message.content"),
            "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture.");
  EXPECT_EQ(number_at(thinking, "usage.completion_tokens_details.reasoning_tokens"), 12);
  for (const char* path : {"/chat/completions", "/beta/chat/completions"})
    EXPECT_EQ(server_.post(path, ask("Hello!", kNoThinking)).status, 200) << path;
}

TEST_F(ServeTest, AStreamAddsUpToTheWholeAnswer) {
  const std::string body = ask("Who are you?");
  const Json whole = chat(body);
  const Streamed parts = stream(kChat, body);
  EXPECT_EQ(parts.content, text_at(whole, "choices.0.message.content"));
  EXPECT_EQ(parts.reasoning, text_at(whole, "choices.0.message.reasoning_content"));
  EXPECT_EQ(parts.finish, "stop");
  EXPECT_TRUE(parts.done);
  const Streamed counted = stream(
      kChat,
      ask("Hello!", std::string(kNoThinking) + R"(, "stream_options": {"include_usage": true})"));
  EXPECT_EQ(number_at(counted.usage, "completion_tokens"), 9);
}

TEST_F(ServeTest, SeveralChoicesAreSeparateAndRepeatable) {
  const std::string body = R"({"temperature": 1.5, "seed": 7, "n": 3, "max_tokens": 20,
      "messages": [{"role": "user", "content": "Tell me a story."}]})";
  const Json first = chat(body), second = chat(body);
  EXPECT_EQ(at(first, "choices").dump(), at(second, "choices").dump());
  EXPECT_EQ(at(first, "choices").array()->size(), 3u);
  EXPECT_EQ(number_at(first, "choices.2.index"), 2);
  EXPECT_NE(text_at(first, "choices.0.message.reasoning_content"),
            text_at(first, "choices.1.message.reasoning_content"));
}

TEST_F(ServeTest, StopsAcrossTokensInContentOnly) {
  const auto stopped = [&](const std::string& stop) {
    const std::string body = ask("Who are you?", "\"stop\": " + stop);
    const Json json = chat(body);
    const Streamed parts = stream(kChat, body);
    EXPECT_EQ(parts.content, text_at(json, "choices.0.message.content"));
    EXPECT_EQ(text_at(json, "choices.0.finish_reason"), "stop");
    return text_at(json, "choices.0.message.content");
  };
  EXPECT_EQ(stopped(R"("ano, a ti")"), "I am N");
  // Two end at the same byte: the longer one counts.
  EXPECT_EQ(stopped(R"(["zz", "demo", "tiny demo"])"), "I am Nano, a ");
  EXPECT_EQ(stopped(R"("I am")"), "");
  EXPECT_EQ(stopped(R"("no such text")"),
            "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture.");
  const Json by_token =
      chat(ask("Hello!", std::string(kNoThinking) + R"(, "stop_token_ids": [952])"));
  EXPECT_EQ(text_at(by_token, "choices.0.message.content"), "Hello!");
}

TEST_F(ServeTest, EndsAtTheLength) {
  const Json json = chat(ask("Who are you?", "\"max_tokens\": 3"));
  EXPECT_EQ(text_at(json, "choices.0.finish_reason"), "length");
  EXPECT_EQ(number_at(json, "usage.completion_tokens"), 3);
}

TEST_F(ServeTest, GivesLogProbabilities) {
  const Json json =
      chat(ask("Hello!", std::string(kNoThinking) + R"(, "logprobs": true, "top_logprobs": 2)"));
  const Json list = at(json, "choices.0.logprobs.content");
  ASSERT_TRUE(list.array());
  std::string text;
  for (const Json& token : *list.array()) {
    text += *token.find("token")->string();
    EXPECT_LE(*token.find("logprob")->real(), 0);
    ASSERT_EQ(token.find("top_logprobs")->array()->size(), 2u);
    EXPECT_EQ(text_at(token, "top_logprobs.0.token"), *token.find("token")->string());
  }
  EXPECT_EQ(text, "Hello! How can I help you?");
}

TEST_F(ServeTest, BiasForbidsTokens) {
  const std::string text =
      content(ask("Hello!", std::string(kNoThinking) + R"(, "logit_bias": {"792": -100})"));
  EXPECT_NE(text.substr(0, 5), "Hello");
}

TEST_F(ServeTest, ContinuesAPrefix) {
  const std::string body = R"({"temperature": 0, "thinking": {"type": "disabled"}, "messages": [
    {"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello! How", "prefix": true}]})";
  EXPECT_EQ(content(body), " can I help you?");
}

TEST_F(ServeTest, CallsToolsAndTakesTheirResults) {
  const std::string body = ask("What is the weather in Paris?", kWeather);
  const Json first = chat(body);
  EXPECT_EQ(text_at(first, "choices.0.finish_reason"), "tool_calls");
  EXPECT_EQ(text_at(first, "choices.0.message.tool_calls.0.function.name"), "get_weather");
  EXPECT_EQ(text_at(first, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"city": "Paris"})");
  const Streamed parts = stream(kChat, body);
  EXPECT_EQ(parts.call_name, "get_weather");
  EXPECT_EQ(parts.arguments, R"({"city": "Paris"})");
  EXPECT_EQ(parts.finish, "tool_calls");
  const std::string id = text_at(first, "choices.0.message.tool_calls.0.id");
  EXPECT_EQ(id.substr(0, 5), "call_");
  const Json message = at(first, "choices.0.message");
  const std::string second =
      R"({"temperature": 0, )" + std::string(kWeather) +
      R"(, "messages": [{"role": "user", "content": "What is the weather in Paris?"},)" +
      message.dump() + R"(, {"role": "tool", "tool_call_id": ")" + id +
      R"(", "content": "{\"temp\": 21, \"sky\": \"sunny\"}"}]})";
  EXPECT_NE(content(second).find("sunny"), std::string::npos) << content(second);
}

TEST_F(ServeTest, ForcesForbidsAndNamesTools) {
  const std::string named =
      R"(, "tool_choice": {"type": "function", "function": {"name": "get_weather"}})";
  for (const std::string& extra : {std::string(R"(, "tool_choice": "required")"), named}) {
    for (const std::string& thinking : {std::string(), ", " + std::string(kNoThinking)}) {
      const Json json = chat(ask("Hello!", kWeather + extra + thinking));
      EXPECT_EQ(text_at(json, "choices.0.finish_reason"), "tool_calls") << json.dump();
      EXPECT_EQ(text_at(json, "choices.0.message.tool_calls.0.function.name"), "get_weather");
      const auto arguments =
          parse_json(text_at(json, "choices.0.message.tool_calls.0.function.arguments"));
      ASSERT_TRUE(arguments) << json.dump();
      EXPECT_TRUE(arguments->find("city")->string());
    }
  }
  const Json none = chat(
      ask("What is the weather in Paris?", std::string(kWeather) + R"(, "tool_choice": "none")"));
  EXPECT_EQ(text_at(none, "choices.0.finish_reason"), "stop");
}

TEST_F(ServeTest, ConstrainsTheContent) {
  const auto json_of = [&](const std::string& extra) {
    const std::string text = content(ask("Hello!", extra));
    const auto parsed = parse_json(text);
    EXPECT_TRUE(parsed) << text;
    return parsed ? *parsed : Json();
  };
  EXPECT_TRUE(json_of(R"("response_format": {"type": "json_object"})").object());
  const Json typed =
      json_of(R"("response_format": {"type": "json_schema", "json_schema": {"name": "x",
      "strict": true, "schema": {"type": "object", "properties": {"age": {"type": "integer",
      "minimum": 3, "maximum": 9}}, "required": ["age"], "additionalProperties": false}}})");
  EXPECT_GE(number_at(typed, "age"), 3);
  EXPECT_LE(number_at(typed, "age"), 9);
  EXPECT_EQ(content(ask("Hello!", R"("guided_choice": ["violet"])")), "violet");
  EXPECT_EQ(content(ask("Hello!", R"("guided_regex": "[0-9]{4}")")).size(), 4u);
  EXPECT_EQ(content(ask("Hello!", R"("guided_grammar": "root ::= \"yes\" | \"no\"")")).size() / 2,
            1u);
}

TEST_F(ServeTest, CompletesTextTokensAndHoles) {
  const auto complete = [&](const std::string& body) {
    const HttpResponse response = server_.post(kText, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return server_.json(response);
  };
  const Json text =
      complete(R"({"prompt": "The capital of France", "max_tokens": 4, "temperature": 0})");
  EXPECT_EQ(text_at(text, "object"), "text_completion");
  const Json tokens =
      complete(R"({"prompt": [0, 277, 457, 338, 1978], "max_tokens": 4, "temperature": 0})");
  EXPECT_EQ(text_at(tokens, "choices.0.text"), text_at(text, "choices.0.text"));
  const Json several = complete(
      R"({"prompt": ["The capital of France", "The capital of Spain"], "n": 2, "max_tokens": 4,
          "temperature": 0})");
  ASSERT_EQ(at(several, "choices").array()->size(), 4u);
  EXPECT_EQ(text_at(several, "choices.1.text"), text_at(text, "choices.0.text"));
  EXPECT_NE(text_at(several, "choices.2.text"), "");
  const Json lists = complete(R"({"prompt": [[0, 277], [0, 277, 457]], "max_tokens": 2})");
  EXPECT_EQ(number_at(lists, "usage.prompt_tokens"), 5);
  const Streamed parts =
      stream(kText, R"({"prompt": "The capital of France", "max_tokens": 4, "temperature": 0})");
  EXPECT_EQ(parts.content, text_at(text, "choices.0.text"));
  const Json hole = complete(
      R"({"prompt": "def add(a, b):\n    return ", "suffix": "\n", "max_tokens": 20, "temperature": 0})");
  EXPECT_EQ(text_at(hole, "choices.0.finish_reason"), "stop") << hole.dump();
}

TEST_F(ServeTest, SpeaksAsLlamaServerDoes) {
  const auto ask_llama = [&](const std::string& body, const char* path = "/completion") {
    return server_.json(server_.post(path, R"({"temperature": 0, )" + body + "}"));
  };
  const std::string openai =
      text_at(server_.json(server_.post(
                  kText, R"({"temperature": 0, "prompt": "Tom the fox", "max_tokens": 8})")),
              "choices.0.text");
  const Json whole = ask_llama(R"("prompt": "Tom the fox", "n_predict": 8, "n_probs": 2)");
  EXPECT_EQ(text_at(whole, "content"), openai);
  EXPECT_EQ(text_at(whole, "stop_type"), "limit");
  EXPECT_EQ(number_at(whole, "tokens_predicted"), 8);
  EXPECT_EQ(at(whole, "completion_probabilities").array()->size(), 8U);
  EXPECT_EQ(number_at(whole, "timings.predicted_n"), 8);
  const HttpResponse stream = server_.post(
      "/completion",
      R"({"temperature": 0, "prompt": "Tom the fox", "n_predict": 8, "stream": true})");
  std::string content;
  const std::vector<Json> events = events_of(stream.body);
  for (const Json& event : events) content += text_at(event, "content");
  EXPECT_EQ(content, openai);
  EXPECT_EQ(at(events.back(), "stop").dump(), "true");
  const Json stopped = ask_llama(
      R"("prompt": "Tom the fox", "n_predict": 50, "stop": [" the"], "logit_bias": [[5, -1.5], [6, false]])");
  EXPECT_EQ(text_at(stopped, "stop_type"), "word");
  EXPECT_EQ(text_at(stopped, "stopping_word"), " the");
  const Json list = ask_llama(R"("prompt": ["Tom the fox", "Hello"], "n_predict": 2)");
  EXPECT_EQ(list.array()->size(), 2U);
  EXPECT_EQ(number_at(list, "1.index"), 1);
  const Json read = ask_llama(R"("prompt": "Tom the fox", "n_predict": 0)");
  EXPECT_EQ(text_at(read, "content"), "");
  EXPECT_EQ(number_at(read, "tokens_predicted"), 0);
  const std::string hole = text_at(
      server_.json(server_.post(
          kText, R"({"temperature": 0, "prompt": "Tom the", "suffix": " fox", "max_tokens": 4})")),
      "choices.0.text");
  EXPECT_EQ(text_at(ask_llama(R"("input_prefix": "Tom", "prompt": " the", "input_suffix": " fox",
                                 "n_predict": 4)",
                              "/infill"),
                    "content"),
            hole);
}

TEST_F(ServeTest, EchoesAPromptWithItsLogProbabilities) {
  const HttpResponse response = server_.post(
      kText, R"({"prompt": [277, 457, 338, 1978], "max_tokens": 1, "temperature": 0, "echo": true,
                 "logprobs": 1})");
  const Json json = server_.json(response);
  const Json logprobs = at(json, "choices.0.logprobs");
  EXPECT_EQ(text_at(json, "choices.0.text").substr(0, 21), "The capital of France");
  ASSERT_EQ(at(logprobs, "tokens").array()->size(), 5u) << response.body;
  EXPECT_TRUE(at(logprobs, "token_logprobs.0").is_null());
  for (const char* i : {"1", "2", "3", "4"}) {
    EXPECT_TRUE(at(logprobs, std::string("token_logprobs.") + i).real()) << response.body;
    EXPECT_GE(at(logprobs, std::string("top_logprobs.") + i).object()->size(), 1u);
  }
  EXPECT_EQ(number_at(logprobs, "text_offset.1"), 3);
  // Scores alone.
  const Json scores = server_.json(server_.post(
      kText, R"({"prompt": "The capital", "max_tokens": 0, "echo": true, "logprobs": 0})"));
  EXPECT_EQ(text_at(scores, "choices.0.text"), "The capital");
  EXPECT_EQ(number_at(scores, "usage.completion_tokens"), 0);
}

TEST_F(ServeTest, ListsItselfAndItsText) {
  EXPECT_EQ(text_at(server_.json(server_.get("/v1/models")), "data.0.id"), "nano");
  EXPECT_EQ(number_at(server_.json(server_.get("/models/nano")), "max_model_len"), 4096);
  const Json tokens =
      server_.json(server_.post("/tokenize", R"({"content": "The capital of France"})"));
  EXPECT_EQ(at(tokens, "tokens").dump(), "[277, 457, 338, 1978]");
  EXPECT_EQ(
      text_at(server_.json(server_.post("/detokenize", R"({"tokens": [277, 457, 338, 1978]})")),
              "content"),
      "The capital of France");
  EXPECT_EQ(
      text_at(server_.json(server_.post("/apply-template", ask("Hello", kNoThinking))), "prompt"),
      "<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>");
  EXPECT_EQ(text_at(server_.json(server_.get("/health")), "status"), "ok");
  EXPECT_EQ(server_.get("/ping").status, 200);
  EXPECT_EQ(text_at(server_.json(server_.get("/version")), "version"), CACHALOT_VERSION);
  EXPECT_EQ(server_.json(server_.get("/slots")).array()->size(), 16u);
  EXPECT_EQ(number_at(server_.json(server_.get("/props")), "total_slots"), 16);
  const HttpResponse metrics = server_.get("/metrics");
  EXPECT_NE(metrics.body.find("\nllamacpp:requests_processing 0\n"), std::string::npos);
  EXPECT_NE(metrics.body.find("vllm:num_requests_running{model_name=\"nano\"} 0\n"),
            std::string::npos);
}

TEST_F(ServeTest, AClientThatLeavesFreesItsSlot) {
  const std::string long_answer =
      ask("Tell me a story.", R"("max_tokens": 3500, "ignore_eos": true)");
  const std::string streamed = "{\"stream\": true, " + long_answer.substr(1);
  for (const bool stream : {true, false}) {
    HttpClient client(server_.port());
    client.send_request("POST", kChat, stream ? streamed : long_answer);
    if (stream) {
      client.read_head();
      std::string piece;
      client.read_chunk(piece);
    } else {
      while (server_.busy() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client.close();
    EXPECT_TRUE(server_.idle_within(2000)) << stream;
  }
  // In the queue, too: twenty requests on sixteen slots.
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_.port()));
    clients.back()->send_request("POST", kChat, long_answer);
  }
  while (server_.busy() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clients.clear();
  EXPECT_TRUE(server_.idle_within(4000));
  EXPECT_EQ(content(ask("Hello!", kNoThinking)), "Hello! How can I help you?");
  // Nobody was told that the server had failed.
  EXPECT_NE(server_.log().find(" 499 "), std::string::npos) << server_.log();
  EXPECT_EQ(server_.log().find(" 500 "), std::string::npos) << server_.log();
}

TEST_F(ServeTest, DrainsAtSigterm) {
  HttpClient client(server_.port());
  client.send_request("POST", kChat,
                      ask("Tell me a story.", R"("max_tokens": 200, "ignore_eos": true)"));
  while (server_.busy() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server_.signal(SIGTERM);
  const HttpResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(number_at(server_.json(response), "usage.completion_tokens"), 200);
  EXPECT_EQ(server_.wait(), 0) << server_.log();
}

TEST_F(ServeTest, ASecondSignalEndsAtOnce) {
  HttpClient client(server_.port());
  client.send_request("POST", kChat,
                      ask("Tell me a story.", R"("max_tokens": 3500, "ignore_eos": true)"));
  while (server_.busy() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server_.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(server_.running());
  const auto start = std::chrono::steady_clock::now();
  server_.signal(SIGINT);
  EXPECT_EQ(server_.wait(), 0) << server_.log();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST_F(ServeTest, EchoesTheTokensOfEveryPromptWhetherTextOrIds) {
  const auto tokens = [&](const std::string& prompts, const std::string& choice) {
    const Json reply = server_.json(server_.post(
        "/v1/completions", R"({"echo": true, "logprobs": 0, "max_tokens": 1, "temperature": 0,
                               "prompt": )" +
                               prompts + "}"));
    return test::at(reply, "choices." + choice + ".logprobs").dump();
  };
  const std::string of_text = tokens(R"(["The capital"])", "0");
  const std::string of_ids = tokens("[[277, 457]]", "0");
  EXPECT_EQ(tokens(R"(["The capital", [277, 457]])", "0"), of_text);
  EXPECT_EQ(tokens(R"(["The capital", [277, 457]])", "1"), of_ids);
  EXPECT_EQ(tokens(R"([[277, 457], "The capital"])", "0"), of_ids);
  EXPECT_NE(of_text, of_ids);
}

TEST_F(ServeTest, LogsWithoutWhatWasSaid) {
  server_.post(kChat, ask("xylophone", "\"max_tokens\": 2"), "X-Request-Id: mine-7\r\n");
  // The line is written when the reply has been sent.
  for (int i = 0; i < 500 && server_.log().find("mine-7") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // The line is written once the response has been.
  std::string log;
  for (int i = 0; i < 500 && log.find(" completion=") == log.npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    log = server_.log();
  }
  EXPECT_NE(log.find("POST /v1/chat/completions 200"), std::string::npos) << log;
  EXPECT_NE(log.find(" completion=2"), std::string::npos) << log;
  EXPECT_NE(log.find("mine-7"), std::string::npos);
  EXPECT_EQ(log.find("xylophone"), std::string::npos);
}

TEST_F(ServeTest, EndsAConstrainedAnswerThatIgnoresTheEnd) {
  const std::string endless =
      std::string(kNoThinking) + R"(, "ignore_eos": true, "max_tokens": 60)";
  for (const char* constraint : {R"("guided_choice": ["yes"])", R"("guided_regex": "y?e?s?")",
                                 R"("guided_json": {"const": "yes"})"}) {
    const Json answer = chat(ask("Hello!", endless + ", " + constraint));
    EXPECT_EQ(text_at(answer, "choices.0.finish_reason"), "stop") << constraint;
    // What may be left out is not: only then nothing else may follow.
    EXPECT_NE(text_at(answer, "choices.0.message.content").find('s'), std::string::npos)
        << constraint;
  }
}

TEST(ServeOptionsTest, AnEffortOfNoneIsNoThinking) {
  test::ServerProcess server({"--effort", "none"});
  ASSERT_TRUE(server.wait_until_ready()) << server.log();
  const Json props = server.json(server.get("/props"));
  EXPECT_EQ(at(props, "default_generation_settings.params.thinking").dump(), "false");
}

TEST(ServeOptionsTest, KeysAliasesOriginsAndTheQueue) {
  test::ServerProcess server({"--api-key", "first", "--api-key", "second", "--alias",
                              "deepseek-chat", "--alias", "other", "--cors", "https://example.org",
                              "--log-format", "json", "-np", "1", "--max-queue", "1", "-c",
                              "1024"});
  ASSERT_TRUE(server.wait_until_ready()) << server.log();
  const std::string hello = ask("Hello!", kNoThinking);
  EXPECT_EQ(server.post(kChat, hello).status, 401);
  EXPECT_EQ(server.post(kChat, hello, "Authorization: Bearer third\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/metrics").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.post(kChat, hello, "authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(server.post(kChat, hello, "X-Api-Key: first\r\n").status, 200);
  EXPECT_EQ(server.post("/health", "{}").status, 405);
  EXPECT_EQ(server.post("/v1/models", "{}").status, 401);
  const std::string key = "X-Api-Key: first\r\n";
  const Json models = server.json(server.get("/v1/models", key));
  EXPECT_EQ(text_at(models, "data.0.id"), "deepseek-chat");
  EXPECT_EQ(text_at(models, "data.1.id"), "other");
  EXPECT_EQ(number_at(models, "data.0.max_model_len"), 1024);

  HttpResponse preflight =
      HttpClient(server.port())
          .request("OPTIONS", kChat, "",
                   "Origin: https://example.org\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "https://example.org");
  EXPECT_NE(preflight.header("access-control-allow-methods").find("POST"), std::string::npos);
  const HttpResponse foreign = server.get("/v1/models", key + "Origin: https://other.org\r\n");
  EXPECT_EQ(foreign.header("access-control-allow-origin"), "");
  EXPECT_EQ(server.get("/v1/models", key + "Origin: https://example.org\r\n")
                .header("access-control-allow-origin"),
            "https://example.org");

  // One runs, one waits, the third is told to come back.
  const std::string endless = ask("Tell me a story.", R"("max_tokens": 900, "ignore_eos": true)");
  HttpClient running(server.port()), waiting(server.port());
  running.send_request("POST", kChat, endless, key);
  const auto count = [&] {
    const std::string text = server.get("/metrics", key).body;
    const auto value = [&](const std::string& name) {
      const size_t at = text.find("\n" + name + " ");
      return at == text.npos ? -1 : std::atoi(text.c_str() + at + name.size() + 2);
    };
    return std::pair(value("llamacpp:requests_processing"), value("llamacpp:requests_deferred"));
  };
  while (count().first < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  waiting.send_request("POST", kChat, endless, key);
  while (count().second < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const HttpResponse refused = server.post(kChat, hello, key);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_GE(std::atoi(refused.header("retry-after").c_str()), 1);
  const HttpResponse never = server.post(kText, R"({"prompt": ["a", "b", "c"]})", key);
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_EQ(text_at(server.json(never), "error.param"), "prompt");
  EXPECT_NE(server.log().find("{\"time\": "), std::string::npos);  // of earlier requests
}

class ServeUsageTest : public test::ProgramTest {};

TEST_F(ServeUsageTest, SaysWhatIsWrongAtItsStart) {
  expect_error("serve -m /nowhere --port 0", 1, "expected a model folder");
  expect_error("serve --port 99999", 2, "--port: Value 99999 not in range 0 to 65535");
  expect_error("serve --context 0", 2, "--context: Value 0 not in range");
  expect_error("serve --host nowhere.invalid", 1, "nowhere.invalid");
  expect_error("serve --api-key-file /nowhere", 1, "--api-key-file");
  expect_error("serve --api-key-file " + write("keys", "# none\n\n"), 1, "expected an API key");
  expect_error("serve --log-format xml", 2, "--log-format");
  for (const char* origin : {"foo", "https://", "https://a.org/", "https://a.org/page", "a.org:80",
                             "https://a.org:x", "https://a.org:99999", "https://a@b.org"}) {
    expect_error(std::string("serve --cors ") + origin, 2, "--cors: expected * or an origin");
  }
  // What is refused here is the drafts.
  for (const char* origin : {"'*'", "https://a.org", "http://localhost:3000", "http://[::1]:80",
                             "chrome-extension://abcdef"}) {
    expect_error(std::string("serve --drafts 99 --port 0 --cors ") + origin, 2, "--drafts");
  }
  for (const char* option : {"--timeout", "--temperature", "--top-p", "--min-p",
                             "--repetition-penalty", "--presence-penalty", "--frequency-penalty"}) {
    expect_error(std::string("serve --port 0 ") + option + " nan", 2, "expected");
  }
  expect_error("serve --temperature 5 --port 0", 2, "temperature");
  // Before it listens.
  EXPECT_EQ(program("serve --drafts 99 --port 0").err.find("listening"), std::string::npos);
  const std::filesystem::path config = write("config.json", "");
  std::filesystem::copy_file(CACHALOT_SOURCE_DIR "/models/nano/config.json", config,
                             std::filesystem::copy_options::overwrite_existing);
  const test::ProgramResult alone = program("serve --port 0 -m " + config.parent_path().string());
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_EQ(alone.err.find("listening"), std::string::npos) << alone.err;
  EXPECT_EQ(program("serve --explore --backend reference --port 0").err.find("listening"),
            std::string::npos);
  expect_error("serve --drafts 99 --port 0", 2, "--drafts");
  expect_error("serve --config /nowhere", 1, "--config: /nowhere: cannot open");
  expect_error("serve --config /tmp", 1, "--config: /tmp: cannot read: Is a directory");
  expect_error("serve --config /dev/zero", 1, "/dev/zero: expected a regular file");
}

TEST_F(ServeUsageTest, ReadsItsOptionsFromAFile) {
  const std::string config =
      write("serve.conf", "max-sequences = 3\nalias = [\"from-file\"]\ncontext = 512\n");
  test::ServerProcess server({"--config", config});
  ASSERT_TRUE(server.wait_until_ready()) << server.log();
  EXPECT_EQ(text_at(server.json(server.get("/v1/models")), "data.0.id"), "from-file");
  EXPECT_EQ(number_at(server.json(server.get("/v1/models")), "data.0.max_model_len"), 512);
  EXPECT_EQ(server.json(server.get("/slots")).array()->size(), 3u);
  expect_error("serve --config " + write("empty.conf", "alias = \"\"\nport = 0\n"), 2,
               "empty.conf: alias: must not be empty");
  expect_error("serve --config " + write("section.conf", "[http]\nport = 0\n"), 2,
               "section.conf: expected no section but [serve], found [http]");
  expect_error("serve --config " + write("own.conf", "[serve]\nport = 99999\n"), 2, "--port");
}

}  // namespace
}  // namespace cachalot
