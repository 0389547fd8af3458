// What inspect/live_trace.h says of a step is what the step did.
#include "inspect/live_trace.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/generation.h"
#include "test_engine.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {
namespace {

using Kind = StepTrace::Kind;

class LiveTraceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto tokenizer = Tokenizer::load(test::nano_path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    prompt_ = tokenizer->encode("The number 4171 comes first. Which number came first? ",
                                EncodeMode::plain);
    auto explored = explore(test::nano_path(), {});
    ASSERT_TRUE(explored) << explored.error().message;
    explorer_ = new Explorer(std::move(*explored));
  }
  static void TearDownTestSuite() {
    delete explorer_;
    explorer_ = nullptr;
  }

  static std::unique_ptr<Engine> engine(bool watchable) {
    EngineOptions options;
    options.max_context = 512;
    options.watchable = watchable;
    return test::open_engine(test::nano_path(), options);
  }
  static LiveTraceRequest request(bool drafts) {
    LiveTraceRequest request{.prompt = prompt_, .max_tokens = 12, .end_tokens = {}, .drafts = {}};
    if (drafts) request.drafts = {.mode = DraftMode::fixed, .depth = 3};
    return request;
  }
  static LiveTrace trace(bool drafts) {
    const auto watched = engine(true);
    auto found = trace_live(*watched, *explorer_, request(drafts));
    if (!found) throw std::runtime_error(found.error().message);
    return std::move(*found);
  }

  static std::vector<int32_t> prompt_;
  static Explorer* explorer_;
};
std::vector<int32_t> LiveTraceTest::prompt_;
Explorer* LiveTraceTest::explorer_ = nullptr;

TEST_F(LiveTraceTest, ChangesNoToken) {
  const auto plain = engine(false);
  auto generator = Generator::open(*plain);
  ASSERT_TRUE(generator);
  GenerationParameters parameters{.max_tokens = 12};
  parameters.sampling.temperature = 0;
  const auto answer = generator->generate(prompt_, parameters);
  ASSERT_TRUE(answer);
  EXPECT_EQ(trace(false).generated, answer->ids);
  EXPECT_EQ(trace(true).generated, answer->ids);
}

// What model code shows of itself, recorded apart from the operations.
class Points final : public Observer {
 public:
  void visit(std::string_view point, int64_t layer, ObservedTensor tensor) override {
    if (point != "experts" && point != "chosen") return;
    const auto* values = static_cast<const int32_t*>(tensor.data);
    const int64_t rows = tensor.shape[0], columns = tensor.shape.elements() / rows;
    for (int64_t row = 0; row < rows; ++row) {
      seen[{std::string(point), layer}].push_back(
          {values + row * columns, values + (row + 1) * columns});
    }
  }
  std::map<std::pair<std::string, int64_t>, std::vector<std::vector<int32_t>>> seen;
};

TEST_F(LiveTraceTest, ShowsTheExpertsAndEntriesOfEveryLayer) {
  const auto plain = engine(false);
  Points points;
  const SequenceStep part{.sequence = *plain->open_sequence(), .tokens = prompt_};
  ASSERT_TRUE(plain->step({.sequences = {&part, 1}, .observer = &points}));
  const LiveTrace found = trace(false);
  ASSERT_EQ(found.steps.front().kind, Kind::prefill);
  size_t compared = 0;
  for (const LayerTrace& layer : found.steps.front().layers) {
    for (const auto& [point, table] :
         {std::pair{"experts", &layer.experts}, std::pair{"chosen", &layer.picks}}) {
      const auto expected = points.seen.find({point, layer.layer});
      if (expected == points.seen.end()) {
        EXPECT_EQ(table->rows(), 0) << point << " of layer " << layer.layer;
        continue;
      }
      ASSERT_EQ(table->rows(), std::ssize(expected->second));
      for (int64_t row = 0; row < table->rows(); ++row) {
        const auto values = table->row(row);
        EXPECT_TRUE(std::ranges::equal(values, expected->second[static_cast<size_t>(row)]));
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, points.seen.size());
}

TEST_F(LiveTraceTest, ShowsSharesThatAddUpAndGatesAndSinksBetweenNoneAndAll) {
  const ModelConfig& config = explorer_->config;
  size_t engrams = 0;
  for (const StepTrace& step : trace(true).steps) {
    for (const LayerTrace& layer : step.layers) {
      for (const LayerTrace::Mix* mix : {&layer.attention_mix, &layer.experts_mix}) {
        ASSERT_EQ(mix->pre.rows(), std::ssize(step.positions));
        ASSERT_EQ(mix->post.rows(), std::ssize(step.positions));
        ASSERT_EQ(mix->comb.columns, config.hc_mult * config.hc_mult);
        // Sinkhorn ends with sums of columns that are one.
        for (int64_t to = 0; to < config.hc_mult; ++to) {
          float sum = 0;
          for (int64_t from = 0; from < config.hc_mult; ++from) {
            sum += mix->comb.row(0)[static_cast<size_t>(from * config.hc_mult + to)];
          }
          EXPECT_NEAR(sum, 1, 1e-3);
        }
      }
      ASSERT_EQ(layer.experts.rows(), std::ssize(step.positions));
      for (int64_t row = 0; row < layer.shares.rows(); ++row) {
        float sum = 0;
        for (const float share : layer.shares.row(row)) sum += share;
        EXPECT_NEAR(sum, config.route_scale, 1e-3);
      }
      ASSERT_EQ(std::ssize(layer.sinks), config.n_heads);
      EXPECT_GT(layer.keys, 0);
      for (const float share : layer.sinks) {
        EXPECT_GT(share, 0);
        EXPECT_LT(share, 1);
      }
      if (layer.engram_gates.rows() == 0) continue;
      ++engrams;
      EXPECT_GE(config.engram_index(layer.layer), 0);
      EXPECT_EQ(layer.engram_rows.rows(), std::ssize(step.positions));
      for (const float gate : layer.engram_gates.values) {
        EXPECT_GT(gate, 0);
        EXPECT_LT(gate, 1);
      }
    }
  }
  EXPECT_GT(engrams, 0U);
}

TEST_F(LiveTraceTest, CountsTheDraftsThatWereTakenOver) {
  const LiveTrace found = trace(true);
  int64_t written = 1;  // after the prompt
  const StepTrace* drafts = nullptr;
  for (const StepTrace& step : found.steps) {
    if (step.kind == Kind::draft) drafts = &step;
    if (step.kind == Kind::decode) ++written;
    if (step.kind != Kind::verify) continue;
    ASSERT_NE(drafts, nullptr);
    EXPECT_TRUE(std::equal(step.tokens.begin() + 1, step.tokens.end(), drafts->proposed.begin()));
    ASSERT_GE(step.accepted, 0);
    ASSERT_LT(step.accepted, std::ssize(step.tokens));
    for (int64_t i = 0; i < step.accepted && written + i < std::ssize(found.generated); ++i) {
      EXPECT_EQ(found.generated[static_cast<size_t>(written + i)],
                step.tokens[static_cast<size_t>(i + 1)]);
    }
    written += step.accepted + 1;
  }
  EXPECT_GE(written, std::ssize(found.generated));
}

const Node* find_node(const Node& node, const std::string& id) {
  if (node.id == id) return &node;
  for (const Node& child : node.children) {
    if (const Node* found = find_node(child, id)) return found;
  }
  return nullptr;
}

TEST_F(LiveTraceTest, GivesEveryOperationsTimeToItsNode) {
  for (const StepTrace& step : trace(true).steps) {
    double seconds = 0;
    ASSERT_FALSE(step.nodes.empty());
    for (const NodeTrace& node : step.nodes) {
      seconds += node.seconds;
      const Node* found = find_node(explorer_->root, node.id);
      ASSERT_NE(found, nullptr) << node.id;
      // The one operation that is told apart by its groups of weights.
      EXPECT_TRUE(found->children.empty() || node.id.ends_with("/experts/mixture")) << node.id;
      if (!found->layers.empty()) {
        EXPECT_TRUE(std::ranges::find(found->layers, node.layer) != found->layers.end())
            << node.id << " in layer " << node.layer;
      }
    }
    EXPECT_NEAR(seconds, step.seconds, 1e-9 + 1e-6 * seconds);
  }
}

TEST_F(LiveTraceTest, KeepsTheLastRowsOfALongPrompt) {
  LiveTraceRequest long_request = request(false);
  while (long_request.prompt.size() < 100) long_request.prompt.push_back(long_request.prompt[5]);
  const auto watched = engine(true);
  const auto found = trace_live(*watched, *explorer_, long_request);
  ASSERT_TRUE(found);
  const StepTrace& step = found->steps.front();
  EXPECT_EQ(step.rows_left_out, std::ssize(long_request.prompt) - kTracedRows);
  EXPECT_EQ(step.positions.front(), step.rows_left_out);
  EXPECT_EQ(std::ssize(step.positions), kTracedRows);
  for (const LayerTrace& layer : step.layers) EXPECT_EQ(layer.experts.rows(), kTracedRows);
}

}  // namespace
}  // namespace cachalot
