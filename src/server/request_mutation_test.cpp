// Requests with small changes: read or refused in words, never worse.
#include <gtest/gtest.h>

#include <random>

#include "server/chat_fields.h"
#include "server/llama_fields.h"
#include "server/request_fields.h"
#include "server/test_service.h"

namespace cachalot {
namespace {

constexpr const char* kChat =
    R"({"model": "test", "stream": true, "stream_options": {"include_usage":
true}, "temperature": 0.7, "top_p": 0.9, "n": 2, "stop": ["a", "b"], "seed": 7, "max_tokens": 100,
"logprobs": true, "top_logprobs": 3, "logit_bias": {"5": -3, "7": 2.5}, "stop_token_ids": [3, 4],
"thinking": {"type": "enabled"}, "reasoning_effort": "high", "chat_template_kwargs": {"thinking": true},
"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object",
"properties": {"a": {"type": "integer"}}}}}, "tool_choice": "auto", "parallel_tool_calls": false,
"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type":
"object"}}}], "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type":
"text", "text": "hello \u00e9"}]}, {"role": "assistant", "reasoning_content": "r", "content": null,
"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
{"role": "tool", "tool_call_id": "c1", "content": "result"}, {"role": "user", "content": "go on"}]})";

constexpr const char* kText =
    R"({"prompt": ["one", "two"], "suffix": null, "echo": true, "logprobs": 3,
"max_tokens": 7, "temperature": 1, "guided_choice": ["a", "b"], "add_special_tokens": false, "n": 2,
"best_of": 2, "prefill": "exact", "priority": -3, "timeout": 5.5, "cache_prompt": true})";

constexpr const char* kLlama =
    R"({"prompt": "one", "n_predict": 7, "n_probs": 3, "logit_bias": [[5, -1.5], [7, false]],
"input_prefix": "two", "input_suffix": "three", "input_extra": [{"filename": "f", "text": "four"}],
"stop": ["a"], "temperature": 1, "grammar": "root ::= [a]", "cache_prompt": true, "stream": false})";

std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&](size_t limit) { return random() % limit; };
  for (size_t changes = 1 + below(3); changes > 0; --changes) {
    const size_t at = below(text.size()), length = 1 + below(20);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text[at] = "0123456789-.e\"{}[],:\\"[below(21)];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      default:
        text.insert(at, "99999999999999999999");
    }
    if (text.empty()) text = "{";
  }
  return text;
}

class RequestMutationTest : public testing::Test {
 protected:
  test::TestService service_{std::move(*Tokenizer::load(CACHALOT_SOURCE_DIR "/models/nano"))};

  template <class Read>
  void run(const char* text, Read&& read) {
    ASSERT_TRUE(read(*parse_request_body(text))) << "the request itself is refused";
    std::mt19937 random(1);
    int accepted = 0, refused = 0;
    for (int i = 0; i < 4000; ++i) {
      ApiResult<Json> body = parse_request_body(mutated(text, random));
      std::optional<ApiError> error;
      if (!body) {
        error = body.error();
      } else if (const auto call = read(std::move(*body)); !call) {
        error = call.error();
      }
      ++(error ? refused : accepted);
      if (!error) continue;
      EXPECT_GE(error->status, 400);
      EXPECT_LT(error->status, 500);
      EXPECT_FALSE(error->message.empty());
      const std::string shown = error_json(*error).dump();
      EXPECT_TRUE(parse_json(shown)) << shown;
    }
    EXPECT_GT(accepted, 20) << "the changes are too wild to test anything";
    EXPECT_GT(refused, 20);
  }
};

TEST_F(RequestMutationTest, ChatIsReadOrRefused) {
  run(kChat, [&](Json body) { return read_chat_call(std::move(body), service_); });
}

TEST_F(RequestMutationTest, CompletionsAreReadOrRefused) {
  run(kText, [&](const Json& body) { return read_completion_call(body, service_); });
}

TEST_F(RequestMutationTest, LlamasRequestsAreReadOrRefused) {
  run(kLlama, [&](const Json& body) { return read_llama_completion(body, service_); });
  run(kLlama, [&](const Json& body) { return read_llama_infill(body, service_); });
}

}  // namespace
}  // namespace cachalot
