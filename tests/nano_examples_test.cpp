// The trained model that comes with the project, from messages to the answer's last token. The
// expected ids are the NumPy oracle's (models/nano/README.md); only examples whose two best logits
// always differ by more than 1 are compared.
#include <gtest/gtest.h>

#include <fstream>

#include "chat/render.h"
#include "engine/generation.h"
#include "test_engine.h"
#include "tokenizer/engram_token_map.h"

namespace cachalot {
namespace {

const std::filesystem::path kNano = CACHALOT_SOURCE_DIR "/models/nano";

struct Example {
  std::string id;
  Json request;
  std::vector<int32_t> prompt, completion;
};

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : *json.array()) ids.push_back(static_cast<int32_t>(*id.int64()));
  return ids;
}

// The stable ones without pictures.
std::vector<Example> examples() {
  std::vector<Example> result;
  std::ifstream file(kNano / "examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = *parse_json(line);
    if (!*json.find("stable")->boolean() || *json.find("family")->string() == "image") continue;
    result.push_back({*json.find("id")->string(), json, ids_of(*json.find("prompt_ids")),
                      ids_of(*json.find("completion_ids"))});
  }
  return result;
}

std::unique_ptr<Engine> nano_engine(const EngineOptions& options) {
  const auto checkpoint = std::make_shared<const Checkpoint>(*Checkpoint::open(kNano));
  const EngramTokenMap classes = *engram_token_map(*Tokenizer::load(kNano));
  return std::move(*make_engine(checkpoint, classes.class_of, test::on_test_backend(options)));
}

// Prompts longer than `longest` are left out.
void expect_oracle_tokens(const EngineOptions& options, size_t longest) {
  const auto engine = nano_engine(options);
  Generator generator = *Generator::open(*engine);
  GenerationParameters parameters;
  parameters.sampling.temperature = 0;
  parameters.max_tokens = 128;
  parameters.end_tokens = {static_cast<int32_t>(engine->config().eos_token_id)};
  int compared = 0;
  for (const Example& example : examples()) {
    if (example.prompt.size() > longest) continue;
    const auto result = generator.generate(example.prompt, parameters);
    ASSERT_TRUE(result.has_value()) << example.id << ": " << result.error().message;
    EXPECT_EQ(result->ids, example.completion) << example.id;
    EXPECT_EQ(result->finish, FinishReason::stop) << example.id;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(NanoExamples, PromptsAreThoseOfTheModelsAuthors) {
  const Tokenizer tokenizer = *Tokenizer::load(kNano);
  for (const Example& example : examples()) {
    const auto conversation = parse_conversation(example.request);
    ASSERT_TRUE(conversation.has_value()) << example.id << ": " << conversation.error().message;
    const auto prompt = render(*conversation);
    ASSERT_TRUE(prompt.has_value()) << example.id << ": " << prompt.error().message;
    EXPECT_EQ(encode_prompt(*prompt, tokenizer), example.prompt) << example.id;
  }
}

// One ctest case each, so that they run beside one another.
class NanoExamplesOn : public testing::TestWithParam<std::tuple<Isa, int>> {};

TEST_P(NanoExamplesOn, AreAnsweredAsByTheOracle) {
  const auto [isa, threads] = GetParam();
  EngineOptions options;
  options.isa = isa;
  options.threads = threads;
  expect_oracle_tokens(options, SIZE_MAX);
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : kAllIsas) {
    if (supports(isa)) isas.push_back(isa);
  }
  return isas;
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSetAndThreadCount, NanoExamplesOn,
                         testing::Combine(testing::ValuesIn(supported_isas()),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_threads";
                         });

TEST(NanoExamples, AreAnsweredAsByTheOracleInSmallSteps) {
  EngineOptions options;
  options.max_step_tokens = 7;
  expect_oracle_tokens(options, 400);
}

TEST(NanoExamples, AreAnsweredAsByTheOracleByTheReferenceQueue) {
  EngineOptions options;
  options.backend = Backend::reference;
  expect_oracle_tokens(options, 10);
}

}  // namespace
}  // namespace cachalot
