// The GPU and the CPU on the same tokens, and a step's graph against the same step without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "chat/json_value.h"
#include "checkpoint/test_folder.h"
#include "engine/gpu_placement.h"
#include "model/caches.h"
#include "model/decoder.h"
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

// How an engine on the GPU divides nano's experts.
struct Placement {
  const char* name;
  ExpertsOn experts_on;
  std::optional<double> share = {};  // of the experts' bytes for which there is room
  bool profile = false;
  bool from_disk = false;  // what the CPU computes is read from disk
};
constexpr Placement kAsFits{"AsFits", ExpertsOn::as_fits}, kGpu{"Gpu", ExpertsOn::gpu},
    kCpu{"Cpu", ExpertsOn::cpu}, kHalf{"Half", ExpertsOn::as_fits, 0.5},
    kHotSet{"HotSet", ExpertsOn::as_fits, 0.4, true},
    kHotSetAndDisk{"HotSetAndDisk", ExpertsOn::as_fits, 0.4, true, true},
    kStreamed{"Streamed", ExpertsOn::streamed, 0.4, true};

std::string name_of_case(const testing::TestParamInfo<Placement>& info) { return info.param.name; }

// What the engine takes of the GPU with so much of the experts.
int64_t memory_with(double share, const EngineOptions& options) {
  const auto checkpoint = test::open_checkpoint(test::nano_path());
  const ModelConfig& config = checkpoint->config();
  const ModelWeights weights = *ModelWeights::bind(*checkpoint);
  const CacheOptions caches{.slots = options.max_sequences,
                            .max_context = config.max_position_embeddings,
                            .rollback = options.rollback};
  const auto workspace = static_cast<int64_t>(plan_workspace(
      config, weights, ModelConstants::make(config, test::token_classes_of(test::nano_path())),
      Caches::planned(config, caches), options.max_step_tokens, options.max_step_tokens));
  const WeightPlacement dense = place_dense_weights(weights);
  const auto experts = static_cast<double>(bytes_beside(weights, dense));
  return dense.bytes + static_cast<int64_t>(share * experts) + workspace +
         Caches::bytes_of(config, caches) + kernel_memory(config, options.max_step_tokens) +
         vision_memory(config);
}

// Counts that name some experts of every layer often and others never.
ExpertProfile some_profile(const ModelConfig& config) {
  const Checkpoint checkpoint = Checkpoint::planned(config);
  const ModelWeights weights = *ModelWeights::bind(checkpoint);
  ExpertProfile profile;
  for (const LayerWeights& layer : weights.layers) {
    std::vector<int64_t>& counts = profile.tokens.emplace_back();
    for (size_t e = 0; e < layer.experts.experts.size(); ++e) {
      counts.push_back(static_cast<int64_t>((7 * e + 3 * profile.tokens.size()) % 11) * 100);
    }
  }
  return profile;
}

EngineOptions options_of(const Placement& placement, EngineOptions options = {}) {
  options.backend = Backend::cuda;
  options.experts_on = placement.experts_on;
  if (placement.share) options.gpu_memory = memory_with(*placement.share, options);
  if (placement.from_disk) options.storage.expert_bytes = 200'000;
  if (!placement.profile) return options;
  static const TestFolder folder;
  options.expert_profile = folder.path() / "profile.json";
  const auto checkpoint = test::open_checkpoint(test::nano_path());
  EXPECT_TRUE(write_expert_profile(options.expert_profile, some_profile(checkpoint->config()),
                                   checkpoint->config()));
  return options;
}

class NanoOnGpu : public testing::TestWithParam<Placement> {};

// Wherever the experts are. Without experts on the GPU, the Engram tables are the host's too.
TEST_P(NanoOnGpu, PredictsItsTextsAsOnTheCpu) {
  static const double on_cpu = mean_negative_log_likelihood({});
  EXPECT_NEAR(mean_negative_log_likelihood(options_of(GetParam())), on_cpu, 0.002);
}

TEST_P(NanoOnGpu, HoldsTheExpertsItHasRoomFor) {
  const auto engine = test::open_engine(test::nano_path(), options_of(GetParam()));
  const std::string description = engine->description();
  if (!GetParam().share) return;
  const size_t of = description.find(" of ");
  ASSERT_NE(of, std::string::npos) << description;
  int64_t placed = 0, all = 0;
  const size_t from = description.rfind(", ", of) + 2;
  ASSERT_EQ(std::sscanf(description.c_str() + from, "%ld of %ld experts", &placed, &all), 2)
      << description;
  EXPECT_NEAR(static_cast<double>(placed) / static_cast<double>(all), *GetParam().share, 0.02);
}

INSTANTIATE_TEST_SUITE_P(ExpertsOn, NanoOnGpu,
                         testing::Values(kAsFits, kGpu, kCpu, kHalf, kHotSet, kHotSetAndDisk,
                                         kStreamed),
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

class StepGraphs : public testing::TestWithParam<Placement> {};

// With experts and tables of the host a graph holds calls of the host, beside it and within.
TEST_P(StepGraphs, ComputeTheSameBitsAsStepsWithoutThem) {
  const auto engine =
      test::open_engine(test::nano_path(), options_of(GetParam(), {.max_sequences = 2}));
  const std::vector<Ids> texts = nano_texts();
  Nothing nothing;
  for (size_t i = 0; i + 1 < 8; i += 2) {
    const size_t count = std::min({texts[i].size(), texts[i + 1].size(), size_t{24}});
    const Ids first(texts[i].begin(), texts[i].begin() + static_cast<int64_t>(count));
    const Ids second(texts[i + 1].begin(), texts[i + 1].begin() + static_cast<int64_t>(count));
    EXPECT_EQ(decoded(engine, first, second, nullptr), decoded(engine, first, second, &nothing));
  }
}

INSTANTIATE_TEST_SUITE_P(ExpertsOn, StepGraphs,
                         testing::Values(kAsFits, kCpu, kHotSet, kHotSetAndDisk, kStreamed),
                         name_of_case);

// Logits of all tokens, in chunks.
std::vector<float> in_chunks(const std::unique_ptr<Engine>& engine, std::span<const int32_t> tokens,
                             size_t chunk) {
  const int32_t sequence = *engine->open_sequence();
  std::vector<float> out;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const SequenceStep step{.sequence = sequence,
                            .tokens = tokens.subspan(at, std::min(chunk, tokens.size() - at)),
                            .logits = LogitsOf::all};
    const auto result = engine->step({.sequences = {&step, 1}});
    EXPECT_TRUE(result) << result.error().message;
    out.insert(out.end(), result->logits.data, result->logits.data + result->logits.elements());
  }
  engine->close_sequence(sequence);
  return out;
}

class DividedExperts : public testing::TestWithParam<Placement> {};

TEST_P(DividedExperts, ComputeTheSameBitsInChunksAndInCompany) {
  const auto engine =
      test::open_engine(test::nano_path(), options_of(GetParam(), {.max_sequences = 2}));
  const std::vector<Ids> texts = nano_texts();
  Ids tokens;
  for (size_t i = 0; tokens.size() < 300; ++i) {
    tokens.insert(tokens.end(), texts[i].begin(), texts[i].end());
  }
  const std::vector<float> whole = in_chunks(engine, tokens, tokens.size());
  for (const size_t chunk : {1, 7, 150}) {
    EXPECT_EQ(in_chunks(engine, tokens, chunk), whole) << "chunks of " << chunk;
  }
  const Ids first(tokens.begin(), tokens.begin() + 24), second(tokens.end() - 24, tokens.end());
  const std::vector<float> both = decoded(engine, first, second, nullptr);
  const std::vector<float> alone = in_chunks(engine, first, 1);
  const auto vocabulary = static_cast<int64_t>(alone.size() / first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const auto row = static_cast<int64_t>(i) * vocabulary;
    EXPECT_TRUE(
        std::equal(alone.begin() + row, alone.begin() + row + vocabulary, both.begin() + 2 * row))
        << "token " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(ExpertsOn, DividedExperts,
                         testing::Values(kCpu, kHalf, kHotSet, kHotSetAndDisk, kStreamed),
                         name_of_case);

TEST(StreamedExperts, GiveTheBitsOfExpertsOnTheGpu) {
  Ids tokens;
  for (const Ids& text : nano_texts()) {
    if (tokens.size() < 300) tokens.insert(tokens.end(), text.begin(), text.end());
  }
  const auto streamed = test::open_engine(test::nano_path(), options_of(kStreamed));
  const auto held = test::open_engine(test::nano_path(), options_of(kGpu));
  EXPECT_EQ(in_chunks(streamed, tokens, 150), in_chunks(held, tokens, 150));
  EXPECT_EQ(streamed->arithmetic(), held->arithmetic());
}

// Saved sequences of one division are not to be continued by another.
TEST(GpuPlacement, IsPartOfAnEnginesArithmetic) {
  const auto arithmetic = [](const Placement& placement) {
    return test::open_engine(test::nano_path(), options_of(placement))->arithmetic();
  };
  EXPECT_EQ(arithmetic(kHotSet), arithmetic(kHotSet));
  EXPECT_NE(arithmetic(kHotSet), arithmetic(kHalf));
  EXPECT_NE(arithmetic(kHotSet), arithmetic(kGpu));
}

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
