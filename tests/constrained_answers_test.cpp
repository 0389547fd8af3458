// The trained model under grammars, from messages to the last token: what it writes has the asked
// form, with and without reasoning, greedy and sampled, and drafts change none of it.
#include <gtest/gtest.h>

#include "chat/render.h"
#include "chat/stream_parser.h"
#include "engine/generation.h"
#include "grammar/grammar_compiler.h"
#include "test_engine.h"

namespace cachalot {
namespace {

const char* const kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},
  "n":{"type":"integer","minimum":0,"maximum":500},"kind":{"enum":["big","small"]}},
  "required":["name","n","kind"],"additionalProperties":false})";
const char* const kTools = R"([{"type":"function","function":{"name":"get_weather","strict":true,
  "parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":20},
  "days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"]}}}])";

class ConstrainedAnswers : public testing::Test {
 protected:
  ConstrainedAnswers()
      : tokenizer_(*Tokenizer::load(test::nano_path())),
        compiler_(tokenizer_),
        engine_(test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2})),
        plain_(*Generator::open(*engine_)),
        drafting_(*Generator::open(*engine_, {.mode = DraftMode::fixed, .depth = 4})) {}

  struct Setting {
    bool thinking = false;
    double temperature = 0;
    uint64_t seed = 0;
  };
  static std::vector<Setting> settings() {
    std::vector<Setting> result;
    for (const bool thinking : {false, true}) {
      result.push_back({thinking, 0, 0});
      for (uint64_t seed = 1; seed <= 2; ++seed) result.push_back({thinking, 1, seed});
    }
    return result;
  }

  // The parsed answer, which is the same with and without drafts. A bias on what closes keeps
  // sampled answers of this small model short.
  ParsedMessage answer(Prompt prompt, const CompiledGrammar& grammar, const Setting& setting) {
    const std::vector<int32_t> ids = encode_prompt(prompt, tokenizer_);
    GenerationParameters parameters;
    parameters.sampling.temperature = setting.temperature;
    parameters.sampling.seed = setting.seed;
    for (const char* closer : {"\"", "}", "</think>"})
      parameters.sampling.logit_bias.push_back({*tokenizer_.id_of(closer), 6.0});
    parameters.max_tokens = 400;
    parameters.end_tokens = {*tokenizer_.eos_id()};
    const std::shared_ptr<const CompiledGrammar> shared(std::shared_ptr<void>(), &grammar);
    std::vector<int32_t> answers[2];
    for (Generator* generator : {&plain_, &drafting_}) {
      const auto mask = make_token_mask(shared, prompt.start, parameters.end_tokens);
      parameters.mask = mask.get();
      const auto result = generator->generate(ids, parameters);
      EXPECT_TRUE(result.has_value()) << result.error().message;
      if (!result) return {};
      EXPECT_EQ(result->finish, FinishReason::stop);
      drafted_ += result->drafted;
      answers[generator == &drafting_] = result->ids;
    }
    EXPECT_EQ(answers[0], answers[1]);
    StreamParser parser(StreamParserOptions::for_prompt(prompt));
    for (const int32_t id : answers[0])
      if (id != *tokenizer_.eos_id()) parser.feed(tokenizer_.token_bytes(id));
    parser.finish(StopCause::kStop);
    EXPECT_FALSE(parser.failed()) << parser.message().failure;
    EXPECT_TRUE(parser.message().warnings.empty());
    return parser.message();
  }

  static Prompt prompt(const Setting& setting, const std::string& rest) {
    const std::string request = fmt::format(
        R"({{"messages":[{{"role":"user","content":"What is the weather in Paris for 2 days?"}}],"thinking":{}{}}})",
        setting.thinking, rest);
    return *render(*parse_conversation(*parse_json(request)));
  }

  Tokenizer tokenizer_;
  GrammarCompiler compiler_;
  std::unique_ptr<Engine> engine_;
  Generator plain_, drafting_;
  int64_t drafted_ = 0;
};

TEST_F(ConstrainedAnswers, AreDocumentsOfTheSchema) {
  Constraint constraint;
  constraint.kind = Constraint::kJsonSchema;
  constraint.schema = *parse_json(kSchema);
  const auto grammar = *compiler_.compile(constraint);
  for (const Setting& setting : settings()) {
    const ParsedMessage message = answer(prompt(setting, ""), *grammar, setting);
    EXPECT_EQ(message.finish_reason, "stop");
    const auto value = parse_json(message.content);
    ASSERT_TRUE(value.has_value()) << message.content;
    ASSERT_TRUE(value->find("name") && value->find("n") && value->find("kind")) << message.content;
    EXPECT_EQ(value->object()->size(), 3U);
    EXPECT_LE(*value->find("n")->int64(), 500);
  }
  EXPECT_GT(drafted_, 50);
}

TEST_F(ConstrainedAnswers, AreCallsIfToolsAreRequired) {
  const std::string tools = fmt::format(R"(,"tools":{})", kTools);
  for (const Setting& setting : settings()) {
    const std::string choice = setting.thinking ? "" : R"(,"tool_choice":"required")";
    const Prompt with_tools = prompt(setting, tools + choice);
    const auto grammar =
        *compiler_.compile({}, {.choice = {ToolChoice::kRequired, ""},
                                .tools = *parse_tools(*parse_json(kTools), "tools"),
                                .parallel = false});
    EXPECT_EQ(with_tools.start,
              setting.thinking ? AnswerStart::kReasoning : AnswerStart::kToolCalls);
    const ParsedMessage message = answer(with_tools, *grammar, setting);
    EXPECT_EQ(message.finish_reason, "tool_calls");
    ASSERT_EQ(message.tool_calls.size(), 1U);
    const auto arguments = parse_json(message.tool_calls[0].arguments);
    ASSERT_TRUE(arguments.has_value()) << message.tool_calls[0].arguments;
    EXPECT_TRUE(arguments->find("city") && arguments->find("city")->string());
    EXPECT_TRUE(arguments->find("days") && arguments->find("days")->int64());
  }
}

// Content that is one document, whatever else the request asks for.
TEST_F(ConstrainedAnswers, AreADocumentOrCallsIfBothMayBe) {
  Constraint constraint;
  constraint.kind = Constraint::kJsonSchema;
  constraint.schema = *parse_json(
      R"({"type":"object","properties":{"n":{"type":"integer","maximum":99,"minimum":0}},"required":["n"]})");
  const auto grammar = *compiler_.compile(
      constraint,
      {.choice = {}, .tools = *parse_tools(*parse_json(kTools), "tools"), .parallel = false});
  const std::string tools = fmt::format(R"(,"tools":{})", kTools);
  for (const Setting& setting : settings()) {
    const ParsedMessage message = answer(prompt(setting, tools), *grammar, setting);
    if (!message.tool_calls.empty()) {
      EXPECT_EQ(message.content, "");
      continue;
    }
    const auto value = parse_json(message.content);
    ASSERT_TRUE(value.has_value()) << message.content;
    EXPECT_TRUE(value->find("n") && value->find("n")->int64());
  }
}

}  // namespace
}  // namespace cachalot
