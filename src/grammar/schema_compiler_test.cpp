#include <gtest/gtest.h>

#include <chrono>

#include "grammar/schema_validator_test.h"
#include "grammar/walk_test.h"

namespace cachalot {
namespace {

// Each is walked at random many times: what comes out must parse and satisfy it.
const char* const kSchemas[] = {
    R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false})",
    R"({"type":"object"})",
    R"({})",
    R"(true)",
    R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"boolean"},"d":{"type":"null"}},"required":["b"]})",
    R"({"type":"array","items":{"type":"integer","minimum":-5,"maximum":120},"minItems":2,"maxItems":5})",
    R"({"type":"integer","minimum":7})",
    R"({"type":"integer","exclusiveMinimum":-100,"exclusiveMaximum":-3})",
    R"({"type":"number","minimum":-1.5,"maximum":2.75})",
    R"({"type":"number","exclusiveMinimum":0,"maximum":1})",
    R"({"type":"number","minimum":0.001,"exclusiveMaximum":0.0012})",
    R"({"type":"integer","multipleOf":7,"minimum":0,"maximum":1000})",
    R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":100})",
    R"({"enum":["red","green","blue",3,null,{"a":[1,2]},"é\"\\\n"]})",
    R"({"const":{"x":1.5}})",
    R"({"anyOf":[{"type":"string","maxLength":5},{"type":"integer"},{"type":"null"}]})",
    R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
        {"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind"]}]})",
    R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","minimum":10},{"type":"string"}]})",
    R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
        "required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
    R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}},"name":{"type":"string","minLength":1,"maxLength":10}},"required":["name"]})",
    R"({"type":"string","minLength":3,"maxLength":8})",
    R"({"type":"string","pattern":"^[a-z]{2,4}-\\d+$"})",
    R"({"type":"string","pattern":"^(a|\\x62c?)*\\u0064\\.$","maxLength":12})",
    R"({"type":"string","format":"date","minLength":10})",
    R"({"type":"string","format":"date-time"})",
    R"({"type":"string","format":"uuid"})",
    R"({"type":"string","format":"email"})",
    R"({"type":"string","format":"ipv4"})",
    R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
        {"type":"object","properties":{"b":{"type":"string"},"a":{"minimum":3,"maximum":9}},"required":["b"]}]})",
    R"({"type":["string","null"],"enum":["x","y",null,7]})",
    R"({"type":"object","additionalProperties":{"type":"integer"}})",
    R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"boolean"}},"additionalProperties":{"type":"string"}})",
    R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
    R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"boolean"},"minItems":3})",
    R"({"type":"object","properties":{"p":{"type":"string","nullable":true}},"required":["p","q"]})",
    R"({"type":"object","properties":{"a/b~c":{"type":"integer"},"ü\"":{"$ref":"#/properties/a~1b~0c"}},"required":["a/b~c","ü\""]})",
    R"({"anyOf":[{"required":["a"],"properties":{"a":{"type":"integer"}}},{"required":["b"],"properties":{"b":{"type":"integer"}}}],"type":"object"})",
    R"({"type":"array","maxItems":0})",
    R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"array","items":{"type":"number"}}}},"required":["a"]})",
    R"({"type":"object","properties":{"e":{"$ref":"#/definitions/e"}},"definitions":{"e":{"enum":[1,"1",[1]]}},"required":["e"]})",
};

TEST(SchemaCompiler, WritesOnlyWhatTheSchemaAccepts) {
  std::mt19937 random(7);
  for (const char* text : kSchemas) {
    const Constraint constraint = json_schema(text);
    const auto grammar = nano_compiler().compile(constraint);
    ASSERT_TRUE(grammar.has_value()) << text << ": " << grammar.error().message;
    const SchemaValidator validator(constraint.schema);
    const int32_t end = *nano_tokenizer().eos_id();
    for (int i = 0; i < 50; ++i) {
      const auto mask = make_token_mask(*grammar, AnswerStart::kContent, {&end, 1});
      const Walk walk = random_walk(nano_tokenizer(), *mask, random);
      ASSERT_TRUE(walk.ended) << text << "\n" << walk.text;
      const auto value = parse_json(walk.text);
      ASSERT_TRUE(value.has_value()) << text << "\n" << walk.text << "\n" << value.error().message;
      ASSERT_TRUE(validator.valid(*value)) << text << "\n" << walk.text;
    }
  }
}

TEST(SchemaCompiler, TakesTheLayoutsPeopleWrite) {
  const Constraint constraint = json_schema(
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"type":"string"}}})");
  for (const char* text :
       {R"({"a":[1,2],"b":"x"})", R"({"a": [1, 2], "b": "x"})",
        "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": \"x\"\n}", "{\n\t\"b\": \"x\"\n}", "{}",
        "{ }", R"({"b":"\ud83d\ude00 \u00e9 \/ \\ \" 漢"})"}) {
    EXPECT_TRUE(accepts(constraint, text)) << text;
  }
  for (const char* text :
       {R"({"b":"x","a":[]})", R"({"a":[1,]})", R"({"c":1})", R"({"a":[01]})", R"({"b":"\ud83d"})",
        "{\n\n\n\"b\":\"x\"}", R"({"b":"x"} )", " {}", "{\"b\":\"\n\"}", R"({"b":"\x"})"}) {
    EXPECT_FALSE(accepts(constraint, text)) << text;
  }
}

TEST(SchemaCompiler, KnowsTheEdgesOfNumbers) {
  const Constraint range = json_schema(R"({"type":"integer","minimum":-12,"maximum":305})");
  for (int i = -400; i < 1200; ++i)
    EXPECT_EQ(accepts(range, std::to_string(i)), i >= -12 && i <= 305) << i;
  EXPECT_FALSE(accepts(range, "-0"));
  EXPECT_FALSE(accepts(range, "007"));
  const Constraint large = json_schema(R"({"type":"integer","minimum":12345678901234567890})");
  EXPECT_TRUE(accepts(large, "12345678901234567890"));
  EXPECT_FALSE(accepts(large, "12345678901234567889"));
  const Constraint open = json_schema(R"({"type":"number","exclusiveMinimum":0.5,"maximum":10})");
  for (const char* text : {"0.51", "0.500001", "1", "9.99", "10", "10.0"})
    EXPECT_TRUE(accepts(open, text)) << text;
  for (const char* text : {"0.5", "0.50", "0.49", "0", "-1", "10.01", "11", "1e1"})
    EXPECT_FALSE(accepts(open, text)) << text;
  const Constraint half = json_schema(R"({"type":"integer","minimum":1.5,"exclusiveMaximum":4})");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(accepts(half, std::to_string(i)), i == 2 || i == 3) << i;
  EXPECT_TRUE(accepts(json_schema(R"({"type":"number"})"), "-0.5e-07"));
}

TEST(SchemaCompiler, NamesThePlaceItRefuses) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"not":{}}}})", "#/properties/a/not"},
      {R"({"type":"object","patternProperties":{}})", "#/patternProperties"},
      {R"({"items":{"type":"float"}})", "#/items/type"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"x({"properties":{"x":{"type":"string","pattern":"(?=a)"}}})x", "#/properties/x/pattern"},
      {R"({"$ref":"#/$defs/none"})", "'#/$defs/none' names nothing"},
      {R"({"$ref":"http://example.com/s"})", "#/$ref"},
      {R"({"$ref":"#"})", "refers to itself"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "refers to itself"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "refers to itself"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "#/oneOf"},
      {R"({"oneOf":[{"type":"string"},{"const":"a"}]})", "#/oneOf"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "nothing can satisfy it"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"type":"string","enum":[1]})", "nothing can satisfy it"},
      {R"(false)", "nothing can satisfy it"},
      {R"(7)", "#: expected a schema"},
      {R"({"required":"a"})", "#/required"},
      {R"({"properties":{"a":7}})", "#/properties"},
      {R"({"type":"object","properties":{},"required":["a"],"additionalProperties":false})",
       "'a' is required"},
      {R"({"type":"string","minLength":5,"maxLength":2})", "minLength"},
      {R"({"type":"string","minLength":-1})", "#/minLength"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "at least 3"},
      {R"({"type":"array","minItems":100000000})", "minItems"},
      {R"({"type":"string","minLength":100000000})", "states"},
      {R"({"type":"number","multipleOf":0.3})", "#/multipleOf"},
      {R"({"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"},"minItems":1}},"$ref":"#/$defs/a"})",
       "nothing can satisfy it"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_NE(error_of(json_schema(schema)).find(message), std::string::npos)
        << schema << ": " << error_of(json_schema(schema));
}

TEST(SchemaCompiler, BoundsLengthsItCannotCount) {
  for (const char* schema :
       {R"({"type":"string","maxLength":1000000000})", R"({"type":"string","minLength":2500})",
        R"({"type":"object","properties":{"a":{"maxLength":4000,"type":"string"}}})",
        R"({"type":"integer","multipleOf":259})"})
    EXPECT_EQ(error_of(json_schema(schema)), "") << schema;
  const std::string tool =
      R"([{"function":{"name":"f","strict":true,"parameters":{"type":"object",
          "properties":{"a":{"type":"string","maxLength":1000000000}}}}}])";
  EXPECT_EQ(error_of({}, {.choice = {}, .tools = *parse_tools(*parse_json(tool), "tools")}), "");
}

TEST(SchemaCompiler, IgnoresWhatOnlyDescribes) {
  EXPECT_TRUE(
      accepts(json_schema(R"({"$schema":"https://json-schema.org/draft/2020-12/schema","title":"t",
      "description":"d","default":1,"examples":[1],"type":"integer","format":"int32","x-own":true})"),
              "5"));
}

TEST(SchemaCompiler, NestsAsDeeplyAsTheParserAllows) {
  const Constraint any = json_schema("{}");
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(accepts(any, nested(200)));
  EXPECT_FALSE(accepts(any, nested(300)));
  EXPECT_TRUE(parse_json(nested(200)).has_value());
}

TEST(JsonObject, IsAnyObject) {
  const Constraint constraint{
      .kind = Constraint::kJsonObject, .schema = {}, .text = {}, .choices = {}};
  EXPECT_TRUE(accepts(constraint, R"({"a": {"b": [true, null, -1.5e10, "x"]}})"));
  EXPECT_FALSE(accepts(constraint, "[]"));
  EXPECT_FALSE(accepts(constraint, R"({"a")"));
}

}  // namespace
}  // namespace cachalot
