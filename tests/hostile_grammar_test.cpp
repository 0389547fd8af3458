// Thousands of damaged schemas, grammars, expressions and tools: each is refused with a message, or
// an answer can be begun, in a moment either way. And schemas made to take long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "grammar/walk_test.h"

namespace cachalot {
namespace {

std::string mutated(std::string text, std::mt19937& random, std::string_view letters) {
  for (size_t changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size(), length = 1 + random() % 12;
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text[at] = letters[random() % letters.size()];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      default:
        text.insert(at, 1, letters[random() % letters.size()]);
    }
  }
  return text;
}

class Mutations : public testing::Test {
 protected:
  void check(const Constraint& constraint, const ToolConstraint& tools, const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = nano_compiler().compile(constraint, tools);
    if (!grammar) {
      ++refused_;
      EXPECT_FALSE(grammar.error().message.empty());
    } else if (*grammar) {
      const auto mask = make_token_mask(*grammar, AnswerStart::kContent, {&end_, 1});
      EXPECT_TRUE(std::ranges::any_of(mask->allowed({}), [](uint64_t word) { return word != 0; }))
          << text;
      ++taken_;
    }
    // Far above what any of them takes, so that a busy machine passes too.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << text;
  }
  void TearDown() override {
    EXPECT_GT(refused_, 50);
    EXPECT_GT(taken_, 50);
  }

  int32_t end_ = *nano_tokenizer().eos_id();
  std::mt19937 random_{1};
  int refused_ = 0, taken_ = 0;
};

TEST_F(Mutations, OfSchemas) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/$defs/x"},
"minItems":2,"maxItems":9},"b":{"anyOf":[{"type":"string","minLength":1,"maxLength":40},{"enum":[1,null,"x"]}]},
"c":{"type":"number","minimum":-1.5,"exclusiveMaximum":20},"d":{"allOf":[{"type":"integer"},{"multipleOf":3}]}},
"required":["a","c"],"additionalProperties":{"type":"string","pattern":"^[a-z]{1,9}$"},
"$defs":{"x":{"oneOf":[{"type":"boolean"},{"type":"object","properties":{"y":{"$ref":"#"}},"required":["y"]}]}}})";
  for (int i = 0; i < 3000; ++i) {
    const std::string text = mutated(schema, random_, "0123456789-.e\"{}[],:#/$^abcx");
    Constraint constraint;
    constraint.kind = Constraint::kJsonSchema;
    const auto json = parse_json(text);
    if (!json) continue;
    constraint.schema = *json;
    check(constraint, {}, text);
  }
}

TEST_F(Mutations, OfGrammars) {
  const std::string grammar = R"(root ::= "{" ws pair ("," ws pair){0,5} "}" # pairs
pair ::= [a-z\-_]+ ":" ws (number | "\"" [^"\\\n]* "\"")
number ::= "-"? ([0-9] | [1-9] [0-9]{1,8}) ("." [0-9]+)?
ws ::= (" " | "\n")*
)";
  for (int i = 0; i < 1500; ++i) {
    const std::string text = mutated(grammar, random_, "\"[](){}|*+?\\-^,.:= \nabr0129#");
    check(written(Constraint::kGrammar, text), {}, text);
  }
}

TEST_F(Mutations, OfExpressions) {
  const std::string regex =
      R"(^(?:[A-Z][\w.-]{1,12}|\d{3,}(?<x>ab|c*)?)(\s[^\]a-f\u00e9]+?){0,3}\x41.$)";
  for (int i = 0; i < 1500; ++i) {
    const std::string text = mutated(regex, random_, "()[]{}|*+?\\^$.,-:<>=dwsu0129ab");
    check(written(Constraint::kRegex, text), {}, text);
  }
}

TEST_F(Mutations, OfTools) {
  const std::string tools =
      R"([{"type":"function","function":{"name":"ns::f","strict":true,"parameters":{"type":"object",
"properties":{"a":{"type":"string","pattern":"^x+$"},"b":{"anyOf":[{"type":"integer"},{"type":"string"}]},
"c":{"$ref":"#/$defs/p"}},"required":["a"],"$defs":{"p":{"type":"array","items":{"type":"string"}}}}}},
{"type":"function","function":{"name":"g"}}])";
  for (int i = 0; i < 1500; ++i) {
    const std::string text = mutated(tools, random_, "0123456789\"{}[],:#/$abcfg");
    const auto json = parse_json(text);
    if (!json) continue;
    auto parsed = parse_tools(*json, "tools");
    if (parsed) check({}, {.choice = {ToolChoice::kRequired, ""}, .tools = *parsed}, text);
  }
}

TEST(HostileSchemas, AreRefusedIfTheyWouldTakeLong) {
  std::string patterns = R"({"properties":{)", references = R"({"$defs":{"a0":{"type":"object"})";
  for (int i = 0; i < 400; ++i)
    patterns += fmt::format(R"("p{}":{{"type":"string","pattern":"^[ab]*a[ab]{{{}}}c{}"}},)", i,
                            9 + i % 4, i);
  patterns.back() = '}';
  for (int i = 1; i < 60; ++i)
    references +=
        fmt::format(R"(,"a{}":{{"allOf":[{{"$ref":"#/$defs/a{}"}},{{"$ref":"#/$defs/a{}"}}]}})", i,
                    i - 1, i - 1);
  references += R"(},"$ref":"#/$defs/a59"})";
  std::string alternatives = "{}";
  for (int i = 0; i < 12; ++i)
    alternatives = fmt::format(
        R"({{"allOf":[{0},{{"anyOf":[{{"minimum":1}},{{"minimum":{1}}},{{"maximum":{1}}}]}}]}})",
        alternatives, i);
  for (const std::string& schema : {patterns + "}", references, alternatives}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(error_of(json_schema(schema)), "") << schema.substr(0, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60))
        << schema.substr(0, 200);
  }
}

}  // namespace
}  // namespace cachalot
