#include "bench/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/bench_model.h"
#include "checkpoint/synth.h"

namespace cachalot::bench {
namespace {

constexpr const char* kNano = CACHALOT_SOURCE_DIR "/models/nano";

BenchOptions quick() {
  BenchOptions options;
  options.model = kNano;
  options.threads = 2;
  options.repeat = {.seconds = 0, .repetitions = 2};
  options.machine = {.seconds = 1e-3, .buffer_bytes = 8 << 20};
  options.answers = false;
  return options;
}

const Row* find(const Report& report, const std::string& name) {
  const auto row = std::ranges::find(report.rows, name, &Row::name);
  return row == report.rows.end() ? nullptr : &*row;
}

void expect_sane(const Row& row) {
  EXPECT_GT(row.best_seconds, 0) << row.name;
  EXPECT_GE(row.seconds, row.best_seconds) << row.name;
  EXPECT_LT(row.seconds, 60) << row.name;
  EXPECT_GT(row.bytes, 0) << row.name;
  EXPECT_GE(row.flops, 0) << row.name;
  EXPECT_GT(row.percent_of_limit, 0) << row.name;
  EXPECT_FALSE(row.limit.empty()) << row.name;
  EXPECT_EQ(row.repetitions, 2) << row.name;
  EXPECT_TRUE(!row.outside_streaming || (*row.outside_streaming >= 0 && *row.outside_streaming < 1))
      << row.name;
}

TEST(Machine, HasPositiveLimits) {
  ThreadTeam team(2);
  for (Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    const Machine machine = measure_machine(team, isa, {.seconds = 1e-3, .buffer_bytes = 8 << 20});
    EXPECT_GT(machine.read_bytes_per_second, 0);
    EXPECT_GT(machine.peak(machine.matmul_path), 0) << name_of(isa);
    EXPECT_GT(machine.peak(Machine::kVectorPath), 0) << name_of(isa);
    for (const Peak& peak : machine.peaks) EXPECT_GT(peak.operations_per_second, 0) << peak.path;
  }
}

TEST(Machine, MeasuresOnlyWhatIsAsked) {
  ThreadTeam team(1);
  const Isa isa = best_isa();
  const Machine machine = measure_machine(
      team, isa, {.seconds = 1e-3, .buffer_bytes = 8 << 20, .reading = false, .all_paths = false});
  EXPECT_EQ(machine.read_bytes_per_second, 0);
  EXPECT_GT(machine.peak(machine.matmul_path), 0);
  for (const Peak& peak : machine.peaks) EXPECT_EQ(peak.path, machine.matmul_path);
}

TEST(Machine, ReadsWeightsWhereTheyLie) {
  constexpr int64_t kBytes = 24 << 20;
  const MachineOptions options{.seconds = 1e-3, .buffer_bytes = 8 << 20};
  const std::vector<std::byte> memory(kBytes);
  // Of any length, anywhere, in any order.
  const std::span<const std::byte> all(memory);
  const std::vector<std::span<const std::byte>> parts{all.subspan(10 << 20), all.subspan(1, 12345),
                                                      all.subspan(12346, 10 << 20)};
  for (int threads : {1, 3}) {
    ThreadTeam team(threads);
    Machine machine{.read_buffer_bytes = kBytes / 2};
    measure_weights(team, parts, machine, options);
    EXPECT_GT(machine.weights_bytes_per_second, 0);
    Machine large{.read_buffer_bytes = 2 * kBytes};  // these would fit into a cache
    measure_weights(team, parts, large, options);
    EXPECT_EQ(large.weights_bytes_per_second, 0);
    measure_weights(team, {}, large, options);
    EXPECT_EQ(large.weights_bytes_per_second, 0);
  }
}

TEST(Machine, CachesGrowWithTheirLevel) {
  const auto caches = cache_levels();
  for (size_t i = 1; i < caches.size(); ++i) {
    EXPECT_GE(caches[i].level, caches[i - 1].level);
    EXPECT_GT(caches[i].bytes, 0);
  }
}

TEST(Floors, AreTheLargerOfReadingAndComputing) {
  Machine machine{.isa = Isa::avx2, .read_bytes_per_second = 100, .matmul_path = "fp32_fma"};
  machine.peaks = {{"fp32_fma", Isa::avx2, 1000}};
  Floor reading(machine), computing(machine);
  reading.add("linear", {.bytes_read = 200, .bytes_written = 100, .flops = 1000});
  EXPECT_DOUBLE_EQ(reading.seconds(), 3);
  EXPECT_EQ(reading.limit(), "memory");
  EXPECT_DOUBLE_EQ(reading.seconds_reading_at(50), 6);
  EXPECT_DOUBLE_EQ(reading.seconds_reading_at(1e9), 1);
  computing.add("linear", {.bytes_read = 100, .flops = 5000});
  EXPECT_DOUBLE_EQ(computing.seconds(), 5);
  EXPECT_EQ(computing.limit(), "fp32_fma");
}

TEST(Floors, AddUpOverThePathsOperationsRunOn) {
  Machine machine{.isa = Isa::avx2, .read_bytes_per_second = 1e9, .matmul_path = "fp32_fma"};
  machine.peaks = {{"fp32_fma", Isa::avx2, 1000}, {"int8_dot", Isa::avx2, 4000}};
  Floor floor(machine);
  floor.add("experts", {.flops = 1000});
  floor.add("index_select", {.flops = 8000});
  EXPECT_DOUBLE_EQ(floor.seconds(), 3);
  EXPECT_EQ(floor.limit(), "int8_dot");
}

TEST(Bench, HasRowsForEveryPhaseOfTheBuiltInModel) {
  BenchOptions options = quick();
  options.steps = {.tokens = {6}, .contexts = {0, 600}};
  int64_t seen = 0;
  const auto report = run_bench(options, {.on_row = [&](const Row&) { ++seen; }});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(seen, std::ssize(report->rows));
  std::set<std::string> names;
  for (const Row& row : report->rows) {
    expect_sane(row);
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
  }
  for (const char* name :
       {"step/decode/tokens6/ctx0", "step/decode/tokens6/ctx600", "step/prefill/tokens6/ctx0",
        "step/draft/tokens6/ctx0", "step/verify/tokens6/ctx600", "step/shortcut/tokens6/ctx600",
        "layer/decode/tokens6/ctx600", "layer.window_engram/prefill/tokens6/ctx0",
        "experts/decode/tokens6", "linear.wq_b/prefill/tokens6", "head/decode/tokens6",
        "index_select.use/decode/tokens6/ctx600", "markov_step/draft/tokens6",
        "linear.main_proj/verify/tokens6", "keep_stream/shortcut/tokens6"}) {
    EXPECT_NE(find(*report, name), nullptr) << name;
  }
}

// The built-in model's are few, so they are read apart only if the limit's buffer is small.
TEST(Bench, HoldsRowsOfWeightsAgainstTheReadingOfThese) {
  BenchOptions options = quick();
  options.steps = {.phases = {Phase::decode}, .tokens = {1}, .contexts = {0}};
  for (int64_t bytes : {int64_t{1} << 20, int64_t{64} << 20}) {
    options.machine.buffer_bytes = bytes;
    const auto report = run_bench(options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const double rate = report->machine.weights_bytes_per_second;
    EXPECT_EQ(rate > 0, bytes == 1 << 20);
    const Row* head = find(*report, "head/decode/tokens1");
    ASSERT_NE(head, nullptr);
    ASSERT_EQ(head->percent_of_weights_limit.has_value(), rate > 0);
    if (rate > 0) {
      EXPECT_GT(*head->percent_of_weights_limit, 0);
    }
    EXPECT_FALSE(find(*report, "prepare_query/decode/tokens1")->percent_of_weights_limit);
  }
}

TEST(Bench, CoversEveryOperation) {
  BenchOptions options = quick();
  options.steps.tokens = {6};
  options.steps.contexts = {0};
  const auto report = run_bench(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  for (std::string operation : {
#define CACHALOT_NAME(function, Args) #function,
           CACHALOT_FOR_EACH_OPERATION(CACHALOT_NAME)
#undef CACHALOT_NAME
       }) {
    if (operation == "moe_experts") operation = "experts";
    EXPECT_TRUE(std::ranges::any_of(report->rows, [&](const Row& row) {
      return row.name.starts_with(operation + "/") || row.name.starts_with(operation + ".");
    })) << operation;
  }
}

TEST(Bench, RunsTheFirstLayersAlone) {
  BenchOptions options = quick();
  options.layers = 3;
  options.steps = {.phases = {Phase::decode}, .tokens = {1}, .contexts = {0}};
  const auto report = run_bench(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_NE(find(*report, "layer.source/decode/tokens1/ctx0"), nullptr);
  EXPECT_EQ(find(*report, "layer.reuse/decode/tokens1/ctx0"), nullptr);
  options.layers = 99;
  const auto bad = run_bench(options);
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "--layers: this model has 1 to 10, found 99");
}

TEST(Bench, SaysWhenNothingMatches) {
  BenchOptions options = quick();
  options.filter = "no such row";
  options.steps = {.phases = {Phase::decode}, .tokens = {1}, .contexts = {0}};
  const auto report = run_bench(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("no such row"), std::string::npos);
}

// models/slice: six layers of each kind at the released sizes, for `cachalot synth`.
TEST(Slice, HasTheReleasedSizesAndEveryKindOfLayer) {
  const auto slice = config_at(CACHALOT_SOURCE_DIR "/models/slice/config.json");
  const auto released = config_at(CACHALOT_SOURCE_DIR "/tests/data/released/config.json");
  ASSERT_TRUE(slice.has_value()) << slice.error().message;
  ASSERT_TRUE(released.has_value()) << released.error().message;
  EXPECT_EQ(slice->dim, released->dim);
  EXPECT_EQ(slice->moe_inter_dim, released->moe_inter_dim);
  EXPECT_EQ(slice->n_routed_experts, released->n_routed_experts);
  EXPECT_EQ(slice->n_heads * slice->head_dim, released->n_heads * released->head_dim);
  EXPECT_EQ(slice->q_lora_rank, released->q_lora_rank);
  EXPECT_EQ(slice->index_topk, released->index_topk);
  EXPECT_EQ(slice->vocab_size, released->vocab_size);
  EXPECT_TRUE(slice->has_candidates());
  EXPECT_TRUE(slice->has_drafts());
  BenchModel model;
  model.config = *slice;
  std::vector<std::string> kinds;
  for (int64_t layer = 0; layer <= slice->n_layers; ++layer) kinds.push_back(model.kind_of(layer));
  EXPECT_EQ(kinds, (std::vector<std::string>{"window", "window_engram", "source", "reuse", "source",
                                             "index", "stage"}));
}

TEST(EngineCycles, AreThoseOfOneAnswerAndOfMany) {
  BenchOptions options = quick();
  options.cycles = true;
  options.filter = "cycle/*";
  const auto report = run_bench(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  for (const char* name : {"cycle/greedy/answers1", "cycle/greedy/answers64",
                           "cycle/drafts/answers1", "cycle/sampled/answers32"}) {
    const Row* row = find(*report, name);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_GT(row->best_seconds, 0);
    EXPECT_GE(row->seconds, row->best_seconds);
    EXPECT_GT(*row->tokens_per_second, 0);
  }
  options.filter = "cycle/greedy/answers1";
  EXPECT_EQ(run_bench(options)->rows.size(), 1u);
  options.filter = "no such row";
  EXPECT_FALSE(run_bench(options).has_value());
}

TEST(GenerationSpeed, AnswersTheSameWithDraftsAndWithout) {
  ASSERT_TRUE(has_examples(kNano));
  GenerationOptions options;
  options.engine.threads = 2;
  options.engine.max_context = 256;
  options.prompts = 2;
  options.most_tokens = 8;
  options.rounds = 1;
  const auto speed = measure_generation(kNano, options);
  ASSERT_TRUE(speed.has_value()) << speed.error().message;
  ASSERT_EQ(speed->rows.size(), 2u);
  EXPECT_GT(*speed->rows[0].tokens_per_second, 0);
  EXPECT_GT(speed->speed_up, 0);
  EXPECT_GE(speed->tokens_per_cycle, 1);
}

}  // namespace
}  // namespace cachalot::bench
