// The GPU and the CPU on the same tokens, and a step's graph against the same step without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "chat/json_value.h"
#include "test_engine.h"

namespace cachalot {
namespace {

using Ids = std::vector<int32_t>;

// Prompts and answers of models/nano/examples.jsonl, those without pictures.
std::vector<Ids> nano_texts() {
  std::vector<Ids> texts;
  std::ifstream file(test::nano_path() / "examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = *parse_json(line);
    if (*json.find("family")->string() == "image") continue;
    Ids ids;
    for (const char* part : {"prompt_ids", "completion_ids"}) {
      for (const Json& id : *json.find(part)->array()) {
        ids.push_back(static_cast<int32_t>(*id.int64()));
      }
    }
    texts.push_back(std::move(ids));
  }
  return texts;
}

// Of logits [rows, vocab], row by row, the token that follows.
double negative_log_likelihood(View<const float> logits, std::span<const int32_t> next) {
  double sum = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    const std::span<const float> row(logits.row(static_cast<int64_t>(i)),
                                     static_cast<size_t>(logits.extent(1)));
    const float largest = *std::ranges::max_element(row);
    double total = 0;
    for (const float value : row) total += std::exp(static_cast<double>(value) - largest);
    sum += std::log(total) + largest - row[static_cast<size_t>(next[i])];
  }
  return sum;
}

// Per token of all texts.
double mean_negative_log_likelihood(const EngineOptions& options) {
  const auto opened = make_engine(test::open_checkpoint(test::nano_path()),
                                  test::token_classes_of(test::nano_path()), options);
  EXPECT_TRUE(opened) << opened.error().message;
  const auto& engine = *opened;
  double sum = 0;
  int64_t tokens = 0;
  for (const Ids& text : nano_texts()) {
    const int32_t sequence = *engine->open_sequence();
    const std::span<const int32_t> ids = text;
    for (size_t at = 0; at + 1 < ids.size();) {
      const size_t count = std::min<size_t>(ids.size() - 1 - at, 256);
      const SequenceStep step{
          .sequence = sequence, .tokens = ids.subspan(at, count), .logits = LogitsOf::all};
      const auto result = engine->step({.sequences = {&step, 1}});
      EXPECT_TRUE(result) << result.error().message;
      sum += negative_log_likelihood(result->logits, ids.subspan(at + 1, count));
      tokens += static_cast<int64_t>(count);
      at += count;
    }
    engine->close_sequence(sequence);
  }
  return sum / static_cast<double>(tokens);
}

class NanoOnGpu : public testing::TestWithParam<ExpertsOn> {};

// Wherever the experts are. Without experts on the GPU, the Engram tables are the host's too.
TEST_P(NanoOnGpu, PredictsItsTextsAsOnTheCpu) {
  static const double on_cpu = mean_negative_log_likelihood({});
  const double on_gpu =
      mean_negative_log_likelihood({.backend = Backend::cuda, .experts_on = GetParam()});
  EXPECT_NEAR(on_gpu, on_cpu, 0.002);
}

std::string name_of_case(const testing::TestParamInfo<ExpertsOn>& info) {
  constexpr const char* kNames[] = {"AsFits", "Gpu", "Cpu"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(ExpertsOn, NanoOnGpu,
                         testing::Values(ExpertsOn::as_fits, ExpertsOn::gpu, ExpertsOn::cpu),
                         name_of_case);

struct Nothing final : Observer {
  void visit(std::string_view, int64_t, ObservedTensor) override {}
};

// Logits of one-token steps after a prompt, in two sequences at once. Steps that are observed run
// without a graph.
std::vector<float> decoded(const std::unique_ptr<Engine>& engine, const Ids& first,
                           const Ids& second, Observer* observer) {
  const int32_t sequences[] = {*engine->open_sequence(), *engine->open_sequence()};
  std::vector<float> out;
  for (size_t at = 0; at < first.size(); ++at) {
    const SequenceStep steps[] = {{.sequence = sequences[0], .tokens = {&first[at], 1}},
                                  {.sequence = sequences[1], .tokens = {&second[at], 1}}};
    const auto result = engine->step({.sequences = steps, .observer = observer});
    EXPECT_TRUE(result) << result.error().message;
    out.insert(out.end(), result->logits.data, result->logits.data + result->logits.elements());
  }
  for (const int32_t sequence : sequences) engine->close_sequence(sequence);
  return out;
}

class StepGraphs : public testing::TestWithParam<ExpertsOn> {};

// With experts and tables of the host a graph holds calls of the host, beside it and within.
TEST_P(StepGraphs, ComputeTheSameBitsAsStepsWithoutThem) {
  const auto engine =
      test::open_engine(test::nano_path(), {.experts_on = GetParam(), .max_sequences = 2});
  const std::vector<Ids> texts = nano_texts();
  Nothing nothing;
  for (size_t i = 0; i + 1 < 8; i += 2) {
    const size_t count = std::min({texts[i].size(), texts[i + 1].size(), size_t{24}});
    const Ids first(texts[i].begin(), texts[i].begin() + static_cast<int64_t>(count));
    const Ids second(texts[i + 1].begin(), texts[i + 1].begin() + static_cast<int64_t>(count));
    EXPECT_EQ(decoded(engine, first, second, nullptr), decoded(engine, first, second, &nothing));
  }
}

INSTANTIATE_TEST_SUITE_P(ExpertsOn, StepGraphs, testing::Values(ExpertsOn::as_fits, ExpertsOn::cpu),
                         name_of_case);

TEST(GpuPlacement, RefusesWhatDoesNotFit) {
  const auto classes = test::token_classes_of(test::nano_path());
  const auto engine = make_engine(
      test::open_checkpoint(test::nano_path()), classes,
      {.backend = Backend::cuda, .experts_on = ExpertsOn::gpu, .gpu_memory = 1'000'000'000});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("do not fit in 1.0 GB (--gpu-memory)"), std::string::npos)
      << engine.error().message;
}

}  // namespace
}  // namespace cachalot
