#include "server/messages_request.h"

#include <gtest/gtest.h>

#include "chat/render.h"
#include "server/messages_error.h"

namespace cachalot {
namespace {

const ServiceDefaults kDefaults = {.model_names = {"nano", "deepseek-flash"}};

ApiResult<MessagesRequest> parse(std::string_view text, MessagesUse use = MessagesUse::answer) {
  auto json = parse_json(text);
  EXPECT_TRUE(json) << text;
  return parse_messages_request(*json, {}, kDefaults, use);
}

MessagesRequest parsed(std::string_view text) {
  auto request = parse(text);
  EXPECT_TRUE(request) << text << ": " << request.error().message;
  return request ? std::move(*request) : MessagesRequest();
}

// A request with these members beside the usual ones.
std::string with(std::string_view members) {
  return fmt::format(R"({{"model": "nano", "max_tokens": 9, "messages": [{{"role": "user",
      "content": "Hi"}}], {}}})",
                     members);
}

// A request with these messages.
std::string turns(std::string_view messages) {
  return fmt::format(R"({{"max_tokens": 9, "messages": [{}]}})", messages);
}

std::string prompt_of(const MessagesRequest& request) {
  const auto prompt = render(request.chat.conversation);
  return prompt ? prompt->text() : prompt.error().message;
}

constexpr std::string_view kEffort =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

TEST(MessagesRequest, BecomesTheSamePromptAsTheOtherInterfaces) {
  EXPECT_EQ(prompt_of(parsed(with(R"("system": [{"type": "text", "text": "Be brief."},
                                                {"type": "text", "text": "Be kind."}])"))),
            fmt::format("<｜begin▁of▁sentence｜><｜System｜>{}Be brief.\n\nBe kind.<｜User｜>Hi"
                        "<｜Assistant｜><think>",
                        kEffort));
  EXPECT_EQ(prompt_of(parsed(with(R"("thinking": {"type": "disabled"}, "system": "S")"))),
            "<｜begin▁of▁sentence｜><｜System｜>S<｜User｜>Hi<｜Assistant｜></think>");
}

TEST(MessagesRequest, KeepsThinkingThatIsPassedBack) {
  const MessagesRequest request = parsed(R"({"max_tokens": 9,
      "tools": [{"name": "f", "description": "F", "input_schema": {"type": "object"}}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "Go"}]},
                   {"role": "assistant", "content": [
                     {"type": "thinking", "thinking": "I call f.", "signature": "s"},
                     {"type": "redacted_thinking", "data": "xx"},
                     {"type": "text", "text": "Now."},
                     {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, 2.0]}},
                     {"type": "tool_use", "id": "t2", "name": "f", "input": {}}]},
                   {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
                     {"type": "tool_result", "tool_use_id": "t1", "is_error": true,
                      "content": [{"type": "text", "text": "one"}]},
                     {"type": "text", "text": "Well?"}]}]})");
  const std::string prompt = prompt_of(request);
  EXPECT_NE(prompt.find(
                "<think>I call f.</think>Now.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                "<｜DSML｜ parameter name=\"a\" string=\"false\">[1, 2.0]</｜DSML｜ parameter>\n"),
            prompt.npos)
      << prompt;
  EXPECT_NE(prompt.find("<｜User｜><tool_result>one</tool_result>\n\n<tool_result>two</tool_result>"
                        "\n\nWell?<｜Assistant｜><think>"),
            prompt.npos)
      << prompt;
  EXPECT_NE(prompt.find(R"({"name": "f", "description": "F", "parameters": {"type": "object"}})"),
            prompt.npos)
      << prompt;
}

TEST(MessagesRequest, ContinuesAnAssistantTurnAtTheEnd) {
  const std::string prompt = prompt_of(parsed(R"({"max_tokens": 9, "thinking": {"type": "disabled"},
      "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "{\"a\":"}]})"));
  EXPECT_TRUE(prompt.ends_with("<｜Assistant｜></think>{\"a\":")) << prompt;
}

TEST(MessagesRequest, TakesSamplingAndStops) {
  const MessagesRequest request = parsed(with(R"("temperature": 0.5, "top_p": 0.9, "top_k": 40,
      "stop_sequences": ["a", "b"], "stream": true, "metadata": {"user_id": "u"},
      "service_tier": "auto", "container": "c", "mcp_servers": [], "thinking": null)"));
  EXPECT_EQ(request.chat.max_tokens, 9);
  EXPECT_EQ(request.chat.sampling.temperature, 0.5);
  EXPECT_EQ(request.chat.sampling.top_p, 0.9);
  EXPECT_EQ(request.chat.sampling.top_k, 0);
  EXPECT_EQ(request.chat.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.stream);
}

TEST(MessagesRequest, ChoosesThinkingAndEffort) {
  const auto options = [](std::string_view members) {
    return parsed(with(members)).chat.conversation.options;
  };
  EXPECT_TRUE(options(R"("thinking": {"type": "enabled", "budget_tokens": 2000})").thinking);
  EXPECT_TRUE(options(R"("thinking": {"type": "adaptive"})").thinking);
  EXPECT_FALSE(options(R"("thinking": {"type": "disabled"})").thinking);
  EXPECT_EQ(options(R"("output_config": {"effort": "low"})").effort, 50);
  EXPECT_EQ(options(R"("output_config": {"effort": "medium"})").effort, 75);
  EXPECT_EQ(options(R"("output_config": {"effort": "max"})").effort, 100);
  EXPECT_FALSE(options(R"("output_config": {"effort": "none"})").thinking);
  EXPECT_TRUE(
      options(R"("output_config": {"effort": "none"}, "thinking": {"type": "enabled"})").thinking);
}

TEST(MessagesRequest, ChoosesTools) {
  const auto choice = [](std::string_view text) {
    return parsed(with(fmt::format(
        R"("tools": [{{"name": "f", "input_schema": {{}}}}], "tool_choice": {})", text)));
  };
  const auto kind = [&](std::string_view text) {
    return choice(text).chat.conversation.options.tool_choice.kind;
  };
  EXPECT_EQ(kind(R"({"type": "auto"})"), ToolChoice::kAuto);
  EXPECT_EQ(kind(R"({"type": "none"})"), ToolChoice::kNone);
  EXPECT_EQ(kind(R"({"type": "any"})"), ToolChoice::kRequired);
  const MessagesRequest named =
      choice(R"({"type": "tool", "name": "f", "disable_parallel_tool_use": true})");
  EXPECT_EQ(named.chat.conversation.options.tool_choice.name, "f");
  EXPECT_FALSE(named.chat.parallel_tool_calls);
}

TEST(MessagesRequest, TakesASchemaForTheAnswer) {
  for (const char* members :
       {R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}})",
        R"("output_format": {"type": "json_schema", "schema": {"type": "object"}})"}) {
    const MessagesRequest request = parsed(with(members));
    EXPECT_EQ(request.chat.constraint.kind, Constraint::kJsonSchema);
    EXPECT_EQ(request.chat.constraint.schema.dump(), R"({"type": "object"})");
  }
}

TEST(MessagesRequest, CollectsPictures) {
  const MessagesRequest request = parsed(turns(R"({"role": "user", "content": [
      {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
      {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]})"));
  const auto prompt = render(request.chat.conversation);
  ASSERT_TRUE(prompt);
  ASSERT_EQ(prompt->images.size(), 2u);
  EXPECT_EQ(prompt->images[0].location, "data:image/png;base64,QUJD");
  EXPECT_EQ(prompt->images[0].where, "messages[0].content[0].source");
}

TEST(MessagesRequest, AnswersToNamesOfClaude) {
  EXPECT_EQ(parsed(with(R"("model": "claude-opus-4-5")")).model, "claude-opus-4-5");
  EXPECT_EQ(parsed(with(R"("model": "deepseek-flash")")).model, "deepseek-flash");
  EXPECT_EQ(parsed(turns(R"({"role": "user", "content": "Hi"})")).model, "nano");
}

TEST(MessagesRequest, NeedsNoLengthToBeCounted) {
  EXPECT_TRUE(parse(R"({"messages": [{"role": "user", "content": "Hi"}]})", MessagesUse::count));
}

struct Malformed {
  std::string body;
  std::string param;
};

std::string user(std::string_view block) {
  return turns(fmt::format(R"({{"role": "user", "content": [{}]}})", block));
}
std::string assistant(std::string_view block) {
  return turns(fmt::format(
      R"({{"role": "user", "content": "a"}}, {{"role": "assistant", "content": [{}]}})", block));
}
std::string tool(std::string_view members) {
  return with(fmt::format(R"("tools": [{{{}}}])", members));
}

std::vector<Malformed> malformed() {
  const std::string use = R"({"type": "tool_use", "id": "t", "name": "f", "input": {}})";
  const std::string result = R"({"type": "tool_result", "tool_use_id": "t"})";
  return {
      {"{}", "messages"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens"},
      {with(R"("max_tokens": 0)"), "max_tokens"},
      {with(R"("max_tokens": -1)"), "max_tokens"},
      {with(R"("max_tokens": "9")"), "max_tokens"},
      {with(R"("max_tokens": 1.5)"), "max_tokens"},
      {with(R"("max_tokens": 99999999999999999999999)"), "max_tokens"},
      {with(R"("model": 5)"), "model"},
      {with(R"("model": "gpt-4o")"), "model"},
      {with(R"("messages": {})"), "messages"},
      {with(R"("messages": [])"), "messages"},
      {turns("1"), "messages[0]"},
      {turns(R"({"content": "a"})"), "messages[0].role"},
      {turns(R"({"role": "robot", "content": "a"})"), "messages[0].role"},
      {turns(R"({"role": 1, "content": "a"})"), "messages[0].role"},
      {turns(R"({"role": "user"})"), "messages[0].content"},
      {turns(R"({"role": "user", "content": 1})"), "messages[0].content"},
      {turns(R"({"role": "user", "content": []})"), "messages[0].content"},
      {turns(R"({"role": "assistant", "content": []}, {"role": "user", "content": "a"})"),
       "messages[0].content"},
      {user("1"), "messages[0].content[0]"},
      {user("{}"), "messages[0].content[0].type"},
      {user(R"({"type": "video"})"), "messages[0].content[0].type"},
      {user(R"({"type": "text"})"), "messages[0].content[0].text"},
      {user(R"({"type": "text", "text": 1})"), "messages[0].content[0].text"},
      {user(use), "messages[0].content[0].type"},
      {user(R"({"type": "image"})"), "messages[0].content[0].source"},
      {user(R"({"type": "image", "source": {"type": "file", "file_id": "f"}})"),
       "messages[0].content[0].source.type"},
      {user(R"({"type": "image", "source": {"type": "base64", "media_type": "image/png"}})"),
       "messages[0].content[0].source.data"},
      {user(R"({"type": "image", "source": {"type": "url"}})"),
       "messages[0].content[0].source.url"},
      {user(R"({"type": "document", "source": {"type": "base64", "data": ""}})"),
       "messages[0].content[0].source.type"},
      {user(R"({"type": "tool_result"})"), "messages[0].content[0].tool_use_id"},
      {user(R"({"type": "tool_result", "tool_use_id": "t", "content": 5})"),
       "messages[0].content[0].content"},
      {user(result), "messages"},
      {assistant(use), "messages"},
      {assistant(result), "messages[1].content[0].type"},
      {assistant(R"({"type": "thinking"})"), "messages[1].content[0].thinking"},
      {assistant(R"({"type": "tool_use", "id": "t", "name": "", "input": {}})"),
       "messages[1].content[0].name"},
      {assistant(R"({"type": "tool_use", "name": "f", "input": {}})"), "messages[1].content[0].id"},
      {assistant(R"({"type": "tool_use", "id": "t", "name": "f", "input": "{}"})"),
       "messages[1].content[0].input"},
      {assistant(R"({"type": "tool_use", "id": "t", "name": "a::b::c", "input": {}})"),
       "messages[1].content[0].name"},
      {turns(fmt::format(R"({{"role": "assistant", "content": [{0}, {0}]}},
                            {{"role": "user", "content": [{1}]}})",
                         use, result)),
       "messages"},
      {turns(fmt::format(R"({{"role": "assistant", "content": [{0}]}},
                            {{"role": "user", "content": [{1}, {1}]}})",
                         use, result)),
       "messages"},
      {with(R"("system": 5)"), "system"},
      {with(R"("system": [{"type": "image"}])"), "system[0].type"},
      {with(R"("temperature": 2.5)"), "temperature"},
      {with(R"("temperature": "hot")"), "temperature"},
      {with(R"("top_p": -0.1)"), "top_p"},
      {with(R"("stream": "yes")"), "stream"},
      {with(R"("stop_sequences": "a")"), "stop_sequences"},
      {with(R"("stop_sequences": [""])"), "stop_sequences[0]"},
      {with(R"("stop_sequences": [1])"), "stop_sequences[0]"},
      {with(R"("stop_sequences": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15",
              "16","17"])"),
       "stop_sequences"},
      {with(R"("thinking": true)"), "thinking"},
      {with(R"("thinking": {})"), "thinking.type"},
      {with(R"("thinking": {"type": "maybe"})"), "thinking.type"},
      {with(R"("thinking": {"type": "enabled", "budget_tokens": -5})"), "thinking.budget_tokens"},
      {with(R"("output_config": 1)"), "output_config"},
      {with(R"("output_config": {"effort": "huge"})"), "output_config.effort"},
      {with(R"("output_config": {"effort": 101})"), "output_config.effort"},
      {with(R"("output_config": {"format": {"type": "xml"}})"), "output_config.format.type"},
      {with(R"("output_format": {"type": "json_schema"})"), "output_format.schema"},
      {with(R"("tools": {})"), "tools"},
      {with(R"("tools": [1])"), "tools[0]"},
      {tool(R"("input_schema": {})"), "tools[0].name"},
      {tool(R"("name": "a\"b", "input_schema": {})"), "tools[0].name"},
      {tool(R"("name": "f")"), "tools[0].input_schema"},
      {tool(R"("name": "f", "input_schema": [])"), "tools[0].input_schema"},
      {tool(R"("name": "f", "input_schema": {"type": "array"})"), "tools[0].input_schema.type"},
      {tool(R"("name": "f", "input_schema": {}, "description": 1)"), "tools[0].description"},
      {tool(R"("type": "web_search_20250305", "name": "web_search")"), "tools[0].type"},
      {with(R"("tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}])"),
       "tools[1].name"},
      {with(R"("tool_choice": "any")"), "tool_choice"},
      {with(R"("tool_choice": {"type": "some"})"), "tool_choice.type"},
      {with(R"("tool_choice": {"type": "any"})"), "tool_choice"},
      {with(R"("tools": [{"name": "f", "input_schema": {}}],
              "tool_choice": {"type": "tool", "name": "g"})"),
       "tool_choice.name"},
  };
}

TEST(MessagesRequest, RefusesMalformedRequestsNamingTheField) {
  for (const Malformed& request : malformed()) {
    const auto result = parse(request.body);
    ASSERT_FALSE(result) << request.body;
    EXPECT_EQ(result.error().status, 400) << request.body;
    EXPECT_EQ(result.error().param, request.param) << request.body;
    EXPECT_TRUE(result.error().message.starts_with(request.param))
        << request.body << ": " << result.error().message;
  }
}

TEST(MessagesError, HasTheShapeAndTypesOfAnthropic) {
  const auto json = [](int status) {
    return messages_error_json(ApiError(status, "Why"), "r").find("error")->find("type")->dump();
  };
  EXPECT_EQ(messages_error_json(ApiError(400, "bad \xff", "model"), "req_1").dump(),
            "{\"type\": \"error\", \"error\": {\"type\": \"invalid_request_error\", \"message\": "
            "\"bad \xEF\xBF\xBD\"}, \"request_id\": \"req_1\"}");
  EXPECT_EQ(json(401), "\"authentication_error\"");
  EXPECT_EQ(json(404), "\"not_found_error\"");
  EXPECT_EQ(json(405), "\"invalid_request_error\"");
  EXPECT_EQ(json(413), "\"request_too_large\"");
  EXPECT_EQ(json(429), "\"rate_limit_error\"");
  EXPECT_EQ(json(500), "\"api_error\"");
  EXPECT_EQ(json(503), "\"overloaded_error\"");
  EXPECT_EQ(messages_status(ApiError(503, "")), 529);
}

TEST(MessagesError, BelongsToThePathsOfThisInterface) {
  EXPECT_TRUE(is_messages_path("/v1/messages"));
  EXPECT_TRUE(is_messages_path("/v1/messages/count_tokens"));
  EXPECT_TRUE(is_messages_path("/anthropic/v1/models"));
  EXPECT_FALSE(is_messages_path("/v1/chat/completions"));
  EXPECT_FALSE(is_messages_path("/v1/messages_of_others"));
}

}  // namespace
}  // namespace cachalot
