#include "grammar/tool_grammar.h"

#include <gtest/gtest.h>

#include "chat/stream_parser.h"
#include "chat/strict_parser.h"
#include "grammar/schema_validator_test.h"
#include "grammar/walk_test.h"

namespace cachalot {
namespace {

const char* const kTools = R"x([
 {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
   "city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14},
   "unit":{"enum":["C","F",null]}},"required":["city"]}}},
 {"type":"function","function":{"name":"store::save","strict":true,"parameters":{"type":"object","properties":{
   "path":{"type":"string","pattern":"^/[a-z/]*$"},"tags":{"type":"array","items":{"type":"string"}},
   "mode":{"anyOf":[{"type":"string","maxLength":3},{"type":"integer"},{"$ref":"#/$defs/point"}]},
   "arguments":{"type":"object","properties":{"x":{"type":"string"}}}},
   "required":["path","mode","arguments"],"additionalProperties":false,
   "$defs":{"point":{"type":"object","properties":{"x":{"type":"number"},"in":{"$ref":"#/$defs/point"}},"required":["x"],"additionalProperties":false}}}}},
 {"type":"function","function":{"name":"now"}},
 {"type":"function","function":{"name":"mute","strict":true,"parameters":{"type":"object","properties":{},"additionalProperties":false}}},
 {"type":"function","function":{"name":"half","parameters":{"type":"object","properties":{
   "a":{"patternProperties":{}},"b":{"type":"boolean"}},"required":["b"]}}}
])x";

std::vector<Tool> tools() { return *parse_tools(*parse_json(kTools), "tools"); }

ToolConstraint choose(ToolChoice::Kind kind, std::string name = "", bool parallel = true) {
  return {.choice = {kind, std::move(name)}, .tools = tools(), .parallel = parallel};
}

std::shared_ptr<const CompiledGrammar> compiled(const ToolConstraint& constraint,
                                                const Constraint& content = {}) {
  const auto grammar = nano_compiler().compile(content, constraint);
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
  return *grammar;
}

// What the parsers make of a whole answer; both must take it without a word.
ParsedMessage parsed(const std::string& text, AnswerStart start) {
  StreamParser parser({.start = start, .tools = true});
  for (const char c : text) parser.feed({&c, 1});
  parser.finish(StopCause::kStop);
  EXPECT_FALSE(parser.failed()) << parser.message().failure << "\n" << text;
  EXPECT_TRUE(parser.message().warnings.empty()) << text;
  const std::string opened = start == AnswerStart::kToolCalls ? "\n\n<｜DSML｜ calls>\n" : "";
  const auto strict =
      parse_strict(opened + text + "<｜end▁of▁sentence｜>", start == AnswerStart::kReasoning);
  EXPECT_TRUE(strict.has_value()) << strict.error().message << "\n" << text;
  if (strict) {
    EXPECT_EQ(strict->tool_calls.size(), parser.message().tool_calls.size());
    for (size_t i = 0; i < strict->tool_calls.size(); ++i)
      EXPECT_EQ(strict->tool_calls[i].arguments, parser.message().tool_calls[i].arguments);
  }
  return parser.message();
}

void check_calls(const ParsedMessage& message) {
  for (const ParsedCall& call : message.tool_calls) {
    const auto arguments = parse_json(call.arguments);
    ASSERT_TRUE(arguments.has_value()) << call.arguments;
    bool known = false;
    for (const Tool& tool : tools()) {
      if (tool.name != call.name) continue;
      known = true;
      const Json* schema = tool.function.find("parameters");
      EXPECT_TRUE(!schema || SchemaValidator(*schema).valid(*arguments)) << call.arguments;
    }
    EXPECT_TRUE(known) << call.name;
  }
}

struct Case {
  ToolConstraint constraint;
  AnswerStart start;
  size_t least, most;  // calls
};

TEST(ToolGrammar, WritesCallsThatParseAndFit) {
  const size_t any = 1000;
  const Case cases[] = {
      {choose(ToolChoice::kRequired), AnswerStart::kToolCalls, 1, any},
      {choose(ToolChoice::kRequired), AnswerStart::kContent, 1, any},
      {choose(ToolChoice::kRequired), AnswerStart::kReasoning, 1, any},
      {choose(ToolChoice::kRequired, "", false), AnswerStart::kToolCalls, 1, 1},
      {choose(ToolChoice::kRequired, "get_weather"), AnswerStart::kToolCalls, 1, any},
      {choose(ToolChoice::kRequired, "store::save", false), AnswerStart::kReasoning, 1, 1},
      {choose(ToolChoice::kAuto), AnswerStart::kContent, 0, any},
      {choose(ToolChoice::kAuto), AnswerStart::kReasoning, 0, any},
  };
  std::mt19937 random(11);
  const int32_t end = *nano_tokenizer().eos_id();
  for (const Case& c : cases) {
    const auto grammar = compiled(c.constraint);
    size_t calls = 0;
    for (int i = 0; i < 40; ++i) {
      const auto mask = make_token_mask(grammar, c.start, {&end, 1});
      const Walk walk = random_walk(nano_tokenizer(), *mask, random);
      ASSERT_TRUE(walk.ended) << walk.text;
      const ParsedMessage message = parsed(walk.text, c.start);
      EXPECT_GE(message.tool_calls.size(), c.least) << walk.text;
      EXPECT_LE(message.tool_calls.size(), c.most) << walk.text;
      check_calls(message);
      calls += message.tool_calls.size();
      for (const ParsedCall& call : message.tool_calls)
        EXPECT_TRUE(c.constraint.choice.name.empty() ||
                    c.constraint.choice.name.ends_with(call.name));
    }
    EXPECT_GE(calls, c.least * 40);
  }
}

TEST(ToolGrammar, TakesTheEncodersOwnCalls) {
  const std::string opened = "\n\n<｜DSML｜ calls>\n";
  const std::string weather =
      "<｜DSML｜ invoke name=\"get_weather\">\n"
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris a<b && c>d\n\"x\" C:\\t "
      "é漢🧮</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"days\" string=\"false\">2</｜DSML｜ parameter>\n</｜DSML｜ "
      "invoke>";
  const std::string none = "<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>";
  const std::string close = "\n</｜DSML｜ calls>";
  const auto required = compiled(choose(ToolChoice::kRequired));
  const auto automatic = compiled(choose(ToolChoice::kAuto));
  const auto takes = [](const auto& grammar, const std::string& text, AnswerStart start) {
    const Reading reading = read(grammar, text, start);
    return reading.complete && reading.bytes == text.size();
  };
  EXPECT_TRUE(takes(required, opened + weather + "\n" + none + close, AnswerStart::kContent));
  EXPECT_TRUE(takes(required, weather + close, AnswerStart::kToolCalls));
  EXPECT_TRUE(takes(required, "hm\n</think>" + opened + none + close, AnswerStart::kReasoning));
  EXPECT_TRUE(takes(automatic, "I look.\n< a" + opened + weather + close, AnswerStart::kContent));
  EXPECT_TRUE(takes(automatic, "No call is needed.", AnswerStart::kContent));
  EXPECT_FALSE(takes(required, "text", AnswerStart::kContent));
  EXPECT_FALSE(takes(required, opened + close, AnswerStart::kContent));
  EXPECT_FALSE(takes(required, opened + weather + close + "more", AnswerStart::kContent));
  EXPECT_FALSE(takes(compiled(choose(ToolChoice::kRequired, "", false)), none + "\n" + none + close,
                     AnswerStart::kToolCalls));
  const auto with = [&](const std::string& parameter) {
    return "<｜DSML｜ invoke name=\"get_weather\">\n" + parameter + "\n</｜DSML｜ invoke>" + close;
  };
  for (const char* parameter :
       {"", "<｜DSML｜ parameter name=\"city\">x</｜DSML｜ parameter>",
        "<parameter name=\"city\" string=\"true\">x</parameter>",
        "<｜DSML｜ parameter name=\"city\" string=\"false\">\"x\"</｜DSML｜ parameter>",
        "<｜DSML｜ parameter name=\"town\" string=\"true\">x</｜DSML｜ parameter>"})
    EXPECT_FALSE(takes(required, with(parameter), AnswerStart::kToolCalls)) << parameter;
}

TEST(ToolGrammar, SharesAnAnswerWithAFormat) {
  const Constraint number =
      json_schema(R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})");
  const auto grammar = compiled(choose(ToolChoice::kAuto), number);
  std::mt19937 random(2);
  const int32_t end = *nano_tokenizer().eos_id();
  for (const AnswerStart start : {AnswerStart::kContent, AnswerStart::kReasoning}) {
    for (int i = 0; i < 40; ++i) {
      const auto mask = make_token_mask(grammar, start, {&end, 1});
      const Walk walk = random_walk(nano_tokenizer(), *mask, random);
      ASSERT_TRUE(walk.ended) << walk.text;
      const ParsedMessage message = parsed(walk.text, start);
      check_calls(message);
      const bool document =
          SchemaValidator(number.schema).valid(parse_json(message.content).value_or(Json()));
      EXPECT_NE(document, !message.tool_calls.empty()) << walk.text;
    }
  }
}

// The parser of answers would take these for what they spell, in the middle of the document.
TEST(ToolGrammar, KeepsMarkersOutOfADocument) {
  const Constraint any = json_schema(R"({"type":"string"})");
  const auto alone = *nano_compiler().compile(any),
             beside = compiled(choose(ToolChoice::kAuto), any);
  const auto takes = [](const auto& grammar, std::string_view text) {
    return read(grammar, text).complete;
  };
  EXPECT_TRUE(takes(alone, R"("a <|DSML| b")"));
  EXPECT_FALSE(takes(beside, R"("a <|DSML| b")"));
  EXPECT_TRUE(takes(beside, R"("a <|DSM| </thin> b")"));
  const Tokenizer& tokenizer = nano_tokenizer();
  for (const auto& grammar : {alone, beside}) {
    const auto mask = make_token_mask(grammar, AnswerStart::kContent, {});
    for (const char* letter : {"\"", "<", "/", "t", "h", "i", "n", "k"}) {
      ASSERT_TRUE(is_set(mask->allowed({}), *tokenizer.id_of(letter)));
      mask->accept(*tokenizer.id_of(letter));
    }
    EXPECT_FALSE(is_set(mask->allowed({}), *tokenizer.id_of(">")));
  }
}

TEST(ToolGrammar, RefusesWhatCannotBeCalled) {
  const auto error = [](const char* text, ToolChoice choice) {
    return error_of(
        {}, {.choice = std::move(choice), .tools = *parse_tools(*parse_json(text), "tools")});
  };
  const ToolChoice required{ToolChoice::kRequired, ""};
  EXPECT_NE(error("[]", required).find("no tool"), std::string::npos);
  EXPECT_NE(error(kTools, {ToolChoice::kRequired, "other"}).find("no tool"), std::string::npos);
  const char* strict = R"([{"type":"function","function":{"name":"f","strict":true,"parameters":
      {"type":"object","properties":{"a":{"not":{}}}}}}])";
  EXPECT_NE(error(strict, {}).find("tool 'f': #/properties/a/not"), std::string::npos)
      << error(strict, {});
  const char* hopeless = R"([{"type":"function","function":{"name":"f","strict":true,"parameters":
      {"type":"object","properties":{"a":false},"required":["a"]}}}])";
  for (const ToolChoice& choice : {ToolChoice(), required}) {
    EXPECT_NE(error(hopeless, choice).find("tool 'f': #/properties/a: nothing can satisfy it"),
              std::string::npos)
        << error(hopeless, choice);
  }
  const char* lenient = R"([{"type":"function","function":{"name":"f","parameters":
      {"type":"object","properties":{"a":{"not":{}}}}}}])";
  for (const char* parameters : {R"({"type":"array"})", R"({"anyOf":[{"type":"string"}]})"}) {
    const std::string tools = fmt::format(
        R"([{{"type":"function","function":{{"name":"f","parameters":{}}}}}])", parameters);
    EXPECT_NE(error(tools.c_str(), required)
                  .find("tool 'f': #: the schema of its parameters must "
                        "describe an object"),
              std::string::npos)
        << error(tools.c_str(), required);
  }
  EXPECT_EQ(error(lenient, required), "");
  EXPECT_EQ(error(lenient, {}), "");
}

TEST(ToolGrammar, LetsAToolWithoutASchemaTakeAnything) {
  const char* text =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  const auto grammar = *nano_compiler().compile(
      {},
      {.choice = {ToolChoice::kRequired, ""}, .tools = *parse_tools(*parse_json(text), "tools")});
  for (const char* parameters :
       {"",
        "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n"
        "<｜DSML｜ parameter name=\"b\" string=\"false\">{\"c\": [1]}</｜DSML｜ parameter>"}) {
    const std::string call = fmt::format(
        "<｜DSML｜ invoke name=\"f\">\n{}\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", parameters);
    EXPECT_TRUE(read(grammar, call, AnswerStart::kToolCalls).complete) << call;
  }
}

}  // namespace
}  // namespace cachalot
