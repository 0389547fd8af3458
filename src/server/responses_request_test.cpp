#include "server/responses_request.h"

#include <gtest/gtest.h>

#include "chat/render.h"

namespace cachalot {
namespace {

ApiResult<ResponsesRequest> parse(std::string_view text) {
  auto json = parse_json(text);
  EXPECT_TRUE(json) << text;
  return parse_responses_request(*json, {}, {.model_names = {"nano"}});
}

ResponsesRequest parsed(std::string_view text) {
  auto request = parse(text);
  EXPECT_TRUE(request) << text << ": " << request.error().message;
  return request ? std::move(*request) : ResponsesRequest();
}

std::string with(std::string_view members) {
  return fmt::format(R"({{"model": "nano", "input": "Hi", {}}})", members);
}
std::string items(std::string_view list) { return fmt::format(R"({{"input": [{}]}})", list); }
std::string tools(std::string_view list) { return with(fmt::format(R"("tools": [{}])", list)); }

std::string prompt_of(const ResponsesRequest& request) {
  const auto prompt = render(request.chat.conversation);
  return prompt ? prompt->text() : prompt.error().message;
}

TEST(ResponsesRequest, BecomesTheSamePromptAsTheOtherInterfaces) {
  EXPECT_EQ(prompt_of(parsed(with(R"("instructions": "Be brief.",
                                     "reasoning": {"effort": "none"})"))),
            "<｜begin▁of▁sentence｜><｜System｜>Be brief.<｜User｜>Hi<｜Assistant｜></think>");
  const std::string thinking = prompt_of(parsed(items(R"(
      {"role": "developer", "content": [{"type": "input_text", "text": "S"}]},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A"}]},
      {"type": "message", "role": "assistant", "id": "m", "status": "completed",
       "content": [{"type": "output_text", "text": "B", "annotations": []}]},
      {"role": "user", "content": "C"})")));
  EXPECT_TRUE(thinking.ends_with(
      "S<｜User｜>A<｜Assistant｜></think>B<｜end▁of▁sentence｜><｜User｜>C<｜Assistant｜><think>"))
      << thinking;
}

TEST(ResponsesRequest, JoinsWhatTheModelWroteIntoOneTurn) {
  const ResponsesRequest request = parsed(items(R"(
      {"role": "user", "content": "Go"},
      {"type": "reasoning", "id": "r", "summary": [],
       "content": [{"type": "reasoning_text", "text": "I call f."}]},
      {"type": "message", "role": "assistant", "content": "Now."},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"a\": 1}"},
      {"type": "function_call", "call_id": "2", "name": "g", "namespace": "n", "arguments": "{}"},
      {"type": "custom_tool_call", "call_id": "3", "name": "patch", "input": "x\ny"},
      {"type": "custom_tool_call_output", "call_id": "3", "output": "done"},
      {"type": "function_call_output", "call_id": "1",
       "output": [{"type": "input_text", "text": "one"}]},
      {"type": "function_call_output", "call_id": "2", "output": "two"})"));
  const auto& messages = std::get<Chat>(request.chat.conversation.input).messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1].reasoning_content, "I call f.");
  ASSERT_EQ(messages[1].tool_calls.size(), 3u);
  EXPECT_EQ(messages[1].tool_calls[1].qualified(), "n::g");
  EXPECT_EQ(messages[1].tool_calls[2].arguments.dump(), R"({"input": "x\ny"})");
  const std::string prompt = prompt_of(request);
  EXPECT_NE(prompt.find("<tool_result>one</tool_result>\n\n<tool_result>two</tool_result>\n\n"
                        "<tool_result>done</tool_result>"),
            prompt.npos)
      << prompt;
}

TEST(ResponsesRequest, KeepsTwoMessagesInARowApart) {
  const ResponsesRequest request = parsed(items(R"(
      {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"},
      {"role": "user", "content": "C"})"));
  EXPECT_EQ(std::get<Chat>(request.chat.conversation.input).messages.size(), 3u);
}

TEST(ResponsesRequest, ContinuesAnAssistantMessageAtTheEnd) {
  const std::string prompt = prompt_of(parsed(R"({"reasoning": {"effort": "none"}, "input": [
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}]})"));
  EXPECT_TRUE(prompt.ends_with("<｜Assistant｜></think>He")) << prompt;
}

TEST(ResponsesRequest, ShowsCustomToolsAndNamespacesAsFunctions) {
  const ResponsesRequest request = parsed(tools(R"(
      {"type": "function", "name": "f", "description": "F", "strict": true,
       "parameters": {"type": "object"}},
      {"type": "web_search"},
      {"type": "custom", "name": "apply_patch", "description": "Patches.",
       "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE"}},
      {"type": "namespace", "name": "crm", "description": "Customers.",
       "tools": [{"type": "function", "name": "find", "parameters": null}]})"));
  EXPECT_EQ(request.custom_tools, std::set<std::string>{"apply_patch"});
  const std::string prompt = prompt_of(request);
  for (
      const char* line :
      {R"({"name": "f", "description": "F", "parameters": {"type": "object"}, "strict": true})",
       R"({"name": "apply_patch", "description": "Patches.\n\nThe input follows this Lark grammar:\nstart: LINE", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}})",
       R"({"name": "crm::find", "parameters": {"type": "object", "properties": {}}, "description": "Customers."})"})
    EXPECT_NE(prompt.find(std::string(line) + "\n"), prompt.npos) << prompt;
}

TEST(ResponsesRequest, ChoosesTools) {
  const auto choose = [](std::string_view choice) {
    return parsed(with(fmt::format(R"("tools": [{{"type": "function", "name": "f"}},
        {{"type": "custom", "name": "g"}}], "parallel_tool_calls": false, "tool_choice": {})",
                                   choice)));
  };
  const auto chosen = [&](std::string_view choice) {
    return choose(choice).chat.conversation.options.tool_choice;
  };
  EXPECT_EQ(chosen("\"auto\"").kind, ToolChoice::kAuto);
  EXPECT_EQ(chosen("\"none\"").kind, ToolChoice::kNone);
  EXPECT_EQ(chosen("\"required\"").kind, ToolChoice::kRequired);
  EXPECT_EQ(chosen(R"({"type": "function", "name": "f"})").name, "f");
  EXPECT_EQ(chosen(R"({"type": "custom", "name": "g"})").name, "g");
  const ResponsesRequest allowed = choose(R"({"type": "allowed_tools", "mode": "required",
      "tools": [{"type": "function", "name": "f"}]})");
  EXPECT_EQ(allowed.chat.conversation.options.tool_choice.kind, ToolChoice::kRequired);
  EXPECT_EQ(std::get<Chat>(allowed.chat.conversation.input).messages[0].tools.size(), 1u);
  EXPECT_FALSE(allowed.chat.parallel_tool_calls);
}

TEST(ResponsesRequest, TakesSamplingFormatAndInclude) {
  const ResponsesRequest request = parsed(with(R"("max_output_tokens": 5, "temperature": 0,
      "top_p": 0.5, "stream": true, "store": true, "metadata": {"a": "b"}, "truncation": "auto",
      "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
      "top_logprobs": 3, "reasoning": {"effort": "low", "summary": "auto"},
      "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
                          "schema": {"type": "object"}}, "verbosity": "low"})"));
  EXPECT_EQ(request.chat.max_tokens, 5);
  EXPECT_EQ(request.chat.sampling.temperature, 0);
  EXPECT_EQ(request.chat.conversation.options.effort, 50);
  EXPECT_EQ(request.chat.constraint.kind, Constraint::kJsonSchema);
  EXPECT_EQ(request.chat.top_logprobs, 3);
  EXPECT_TRUE(request.stream && request.logprobs);
  EXPECT_EQ(request.echo.find("metadata")->dump(), R"({"a": "b"})");
  EXPECT_EQ(request.echo.find("store")->dump(), "false");
  EXPECT_EQ(parsed(with(R"("text": {"format": {"type": "json_object"}})")).chat.constraint.kind,
            Constraint::kJsonObject);
}

TEST(ResponsesRequest, CollectsPictures) {
  const auto prompt = render(parsed(items(R"({"role": "user", "content": [
      {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"}]})"))
                                 .chat.conversation);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->images.at(0).location, "data:image/png;base64,QUJD");
  EXPECT_EQ(prompt->images.at(0).where, "input[0].content[0].image_url");
}

struct Malformed {
  std::string body;
  std::string param;
  int status = 400;
};

std::vector<Malformed> malformed() {
  const std::string call =
      R"({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"})";
  const std::string output = R"({"type": "function_call_output", "call_id": "1", "output": "x"})";
  return {
      {"{}", "input"},
      {R"({"input": null})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": []})", "input"},
      {with(R"("model": "gpt-5")"), "model", 404},
      {with(R"("model": 5)"), "model"},
      {items("1"), "input[0]"},
      {items(R"({"type": 1})"), "input[0].type"},
      {items(R"({"type": "dance"})"), "input[0].type"},
      {items(R"({"type": "item_reference", "id": "x"})"), "input[0].type"},
      {items(R"({"content": "a"})"), "input[0].role"},
      {items(R"({"role": "robot", "content": "a"})"), "input[0].role"},
      {items(R"({"role": "user"})"), "input[0].content"},
      {items(R"({"role": "user", "content": 1})"), "input[0].content"},
      {items(R"({"role": "user", "content": []})"), "input[0].content"},
      {items(R"({"role": "user", "content": [1]})"), "input[0].content[0]"},
      {items(R"({"role": "user", "content": [{"text": "a"}]})"), "input[0].content[0].type"},
      {items(R"({"role": "user", "content": [{"type": "input_text"}]})"),
       "input[0].content[0].text"},
      {items(R"({"role": "user", "content": [{"type": "input_audio"}]})"),
       "input[0].content[0].type"},
      {items(R"({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]})"),
       "input[0].content[0].image_url"},
      {items(R"({"role": "assistant", "content": [{"type": "input_image"}]})"),
       "input[0].content[0].type"},
      {items(R"({"role": "system", "content": "only this"})"), "input"},
      {items(R"({"role": "system", "content": ""})"), "input"},
      {items(call), "input"},
      {items(output), "input"},
      {items(call + "," + call + "," + output), "input"},
      {items(call + "," + output + "," + output), "input"},
      {items(R"({"type": "function_call", "name": "f", "arguments": "{}"})"), "input[0].call_id"},
      {items(R"({"type": "function_call", "call_id": "1", "arguments": "{}"})"), "input[0].name"},
      {items(R"({"type": "function_call", "call_id": "1", "name": "f", "arguments": {}})"),
       "input[0].arguments"},
      {items(R"({"type": "custom_tool_call", "call_id": "1", "name": "f"})"), "input[0].input"},
      {items(R"({"type": "function_call_output", "output": "x"})"), "input[0].call_id"},
      {items(R"({"type": "function_call_output", "call_id": "1"})"), "input[0].output"},
      {items(R"({"type": "function_call_output", "call_id": "1", "output": 5})"),
       "input[0].output"},
      {items(R"({"type": "reasoning", "content": [{"type": "image"}]})"),
       "input[0].content[0].type"},
      {items(R"({"type": "reasoning", "encrypted_content": 5})"), "input[0].encrypted_content"},
      {with(R"("instructions": 5)"), "instructions"},
      {with(R"("previous_response_id": "resp_1")"), "previous_response_id"},
      {with(R"("conversation": "conv_1")"), "conversation"},
      {with(R"("prompt": {"id": "p"})"), "prompt"},
      {with(R"("background": true)"), "background"},
      {with(R"("max_output_tokens": 0)"), "max_output_tokens"},
      {with(R"("max_output_tokens": 1e30)"), "max_output_tokens"},
      {with(R"("temperature": 3)"), "temperature"},
      {with(R"("top_p": "x")"), "top_p"},
      {with(R"("top_logprobs": 21)"), "top_logprobs"},
      {with(R"("include": "all")"), "include"},
      {with(R"("metadata": [])"), "metadata"},
      {with(R"("truncation": "some")"), "truncation"},
      {with(R"("stream": 1)"), "stream"},
      {with(R"("reasoning": "high")"), "reasoning"},
      {with(R"("reasoning": {"effort": "huge"})"), "reasoning.effort"},
      {with(R"("reasoning": {"effort": 0})"), "reasoning.effort"},
      {with(R"("text": [])"), "text"},
      {with(R"("text": {"format": "json"})"), "text.format"},
      {with(R"("text": {"format": {"type": "regex"}})"), "text.format.type"},
      {with(R"("text": {"format": {"type": "json_schema", "name": "n"}})"), "text.format.schema"},
      {with(R"("parallel_tool_calls": "no")"), "parallel_tool_calls"},
      {with(R"("tools": {})"), "tools"},
      {tools("5"), "tools[0]"},
      {tools(R"({"name": "f"})"), "tools[0].type"},
      {tools(R"({"type": "code_interpreter"})"), "tools[0].type"},
      {tools(R"({"type": "function"})"), "tools[0].name"},
      {tools(R"({"type": "function", "name": "f", "parameters": "x"})"), "tools[0].parameters"},
      {tools(R"({"type": "function", "name": "f", "parameters": {"type": 5}})"),
       "tools[0].parameters.type"},
      {tools(R"({"type": "function", "name": "f"}, {"type": "custom", "name": "f"})"), "tools[1]"},
      {tools(R"({"type": "custom", "name": "f", "format": {"type": "xml"}})"),
       "tools[0].format.type"},
      {tools(R"({"type": "custom", "name": "f", "format": {"type": "grammar"}})"),
       "tools[0].format.syntax"},
      {tools(R"({"type": "namespace", "name": "n"})"), "tools[0].tools"},
      {tools(R"({"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]})"),
       "tools[0].tools[0].type"},
      {tools(R"({"type": "namespace", "name": "a::b", "tools": [{"type": "function",
                 "name": "f"}]})"),
       "tools[0].tools[0]"},
      {with(R"("tool_choice": 5)"), "tool_choice"},
      {with(R"("tool_choice": "maybe")"), "tool_choice"},
      {with(R"("tool_choice": "required")"), "tool_choice"},
      {with(R"("tool_choice": {"type": "mcp"})"), "tool_choice.type"},
      {with(R"("tool_choice": {"type": "function", "name": "f"})"), "tool_choice.name"},
      {with(R"("tool_choice": {"type": "allowed_tools"})"), "tool_choice.tools"},
      {with(R"("tool_choice": {"type": "allowed_tools", "tools": [{"name": "f"}]})"),
       "tool_choice.tools[0]"},
  };
}

TEST(ResponsesRequest, RefusesMalformedRequestsNamingTheField) {
  for (const Malformed& request : malformed()) {
    const auto result = parse(request.body);
    ASSERT_FALSE(result) << request.body;
    EXPECT_EQ(result.error().status, request.status) << request.body;
    EXPECT_EQ(result.error().param, request.param) << request.body;
    EXPECT_TRUE(result.error().message.starts_with(request.param))
        << request.body << ": " << result.error().message;
  }
}

}  // namespace
}  // namespace cachalot
