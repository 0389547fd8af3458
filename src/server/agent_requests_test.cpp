// Every part of whole requests replaced by what does not belong there, or left out: the request is
// read, or refused with the place; nothing else happens.
#include <gtest/gtest.h>

#include "chat/render.h"
#include "server/messages_request.h"
#include "server/responses_request.h"

namespace cachalot {
namespace {

constexpr const char* kMessages = R"({"model": "nano", "max_tokens": 9, "stream": true,
  "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
  "tools": [{"name": "f", "description": "F", "strict": true,
             "input_schema": {"type": "object", "properties": {}}}],
  "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
  "thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 0.5, "top_p": 0.5,
  "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
  "stop_sequences": ["a"], "metadata": {"user_id": "u"},
  "messages": [
    {"role": "user", "content": [{"type": "text", "text": "Hi"},
      {"type": "image", "source": {"type": "url", "url": "u"}},
      {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
      {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
      "content": [{"type": "text", "text": "r"}]}]},
    {"role": "system", "content": "later"}]})";

constexpr const char* kResponses = R"({"model": "nano", "instructions": "S", "stream": true,
  "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true},
    {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark",
                                               "definition": "start: X"}},
    {"type": "namespace", "name": "n", "description": "N",
     "tools": [{"type": "function", "name": "g"}]}],
  "tool_choice": {"type": "allowed_tools", "mode": "auto",
                  "tools": [{"type": "function", "name": "f"}]},
  "reasoning": {"effort": "high", "summary": "auto"}, "max_output_tokens": 9,
  "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
  "include": ["reasoning.encrypted_content"], "top_logprobs": 1, "metadata": {}, "user": "u",
  "temperature": 0.5, "top_p": 0.5, "truncation": "auto", "parallel_tool_calls": true,
  "input": [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"},
                                 {"type": "input_image", "image_url": "u"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}],
     "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "plain:t"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
    {"type": "function_call", "call_id": "1", "name": "f", "namespace": "", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
    {"type": "function_call_output", "call_id": "1",
     "output": [{"type": "input_text", "text": "r"}]},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "r"}]})";

std::vector<Json> odd_values() {
  std::vector<Json> values;
  for (const char* text :
       {"null", "true", "0", "-1", "1e308", "123456789012345678901234567890", "\"\"", "\"x\"",
        "\"a::b::c\"", "[]", "{}", "[null]", "[[]]", "[{}]", "{\"type\": null}", "[\"x\", 1]"})
    values.push_back(parse_json(text).value());
  return values;
}

// Calls check() with the request changed at every place in turn. `value` is a part of the request.
template <class Check>
void change_everywhere(Json& value, const std::vector<Json>& odd, const Check& check) {
  const Json kept = value;
  for (const Json& other : odd) {
    value = other;
    check();
  }
  value = kept;
  if (Json::Array* items = value.array()) {
    for (size_t i = 0; i < items->size(); ++i) {
      change_everywhere((*items)[i], odd, check);
      const Json item = (*items)[i];
      items->erase(items->begin() + static_cast<ptrdiff_t>(i));
      check();
      items->insert(items->begin() + static_cast<ptrdiff_t>(i), item);
    }
  } else if (Json::Object* members = value.object()) {
    for (size_t i = 0; i < members->size(); ++i) {
      change_everywhere((*members)[i].value, odd, check);
      const Json::Member member = (*members)[i];
      members->erase(members->begin() + static_cast<ptrdiff_t>(i));
      check();
      members->insert(members->begin() + static_cast<ptrdiff_t>(i), member);
    }
  }
}

struct Counts {
  int read = 0, refused = 0;
};

template <class Parse>
Counts change_request(const char* text, const Parse& parse) {
  Counts counts;
  Json request = parse_json(text).value();
  EXPECT_TRUE(parse(request));
  change_everywhere(request, odd_values(), [&] {
    // The parsers take objects; parse_request_body() sees to it.
    if (!request.object()) return;
    const auto result = parse(request);
    if (result) {
      ++counts.read;
      (void)render(result->chat.conversation);
      return;
    }
    ++counts.refused;
    EXPECT_FALSE(result.error().param.empty()) << request.dump();
    EXPECT_TRUE(result.error().message.starts_with(result.error().param)) << request.dump();
  });
  return counts;
}

TEST(AgentRequests, AreReadOrRefusedWhateverTheyHold) {
  const ServiceDefaults defaults = {.model_names = {"nano"}};
  const Counts messages = change_request(kMessages, [&](const Json& request) {
    return parse_messages_request(request, {}, defaults);
  });
  const Counts responses = change_request(kResponses, [&](const Json& request) {
    return parse_responses_request(request, {}, defaults);
  });
  for (const Counts& counts : {messages, responses}) {
    EXPECT_GT(counts.read, 100);
    EXPECT_GT(counts.refused, 300);
  }
}

}  // namespace
}  // namespace cachalot
