#include "bench/gpu_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/gpu_machine.h"
#include "bench/recorded_step.h"
#include "bench/step_data.h"
#include "bench/summary.h"
#include "bench/synthetic_caches.h"
#include "bench/table.h"
#include "checkpoint/synth.h"
#include "model/queues.h"

namespace cachalot::bench {
namespace {

constexpr const char* kNano = CACHALOT_SOURCE_DIR "/models/nano";
constexpr const char* kReleased = CACHALOT_SOURCE_DIR "/tests/data/released/config.json";

Machine gpu() {
  return machine_of({.name = "some GPU", .multiprocessors = 100}, {.read_bytes_per_second = 1000,
                                                                   .copy_bytes_per_second = 900,
                                                                   .fp32_per_second = 10,
                                                                   .bf16_per_second = 100,
                                                                   .fp8_per_second = 200,
                                                                   .launch_seconds = 1e-6});
}

// Memory that is not the host's as far as its users can tell.
const MemorySpace& other_memory() {
  static const MemorySpace memory = [] {
    MemorySpace space = host_memory();
    space.is_host = false;
    return space;
  }();
  return memory;
}

TEST(GpuFloors, AreOfTheTensorCoresWhereTheseCanCompute) {
  const Machine machine = gpu();
  const auto floor_of = [&](std::string_view operation) {
    Floor floor(machine);
    floor.add(operation, {.bytes_read = 10, .flops = 1000});
    return std::pair(floor.seconds(), floor.limit());
  };
  EXPECT_EQ(floor_of("moe_experts"), std::pair(5.0, std::string("fp8_wgmma")));
  EXPECT_EQ(floor_of("linear"), std::pair(5.0, std::string("fp8_wgmma")));
  EXPECT_EQ(floor_of("sparse_attention"), std::pair(10.0, std::string("bf16_wgmma")));
  EXPECT_EQ(floor_of("hyper_collapse"), std::pair(100.0, std::string("fp32_fma")));
  Floor reading(machine);
  reading.add("linear", {.bytes_read = 2000, .flops = 100});
  EXPECT_EQ(reading.limit(), "memory");
}

TEST(GpuMachine, IsDescribed) {
  const std::string text = machine_text(gpu());
  for (const char* part : {"some GPU, 100 multiprocessors", "read from memory", "copied in memory",
                           "fp8_wgmma", "from kernel to kernel   1.00 us"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(GpuSteps, AreTheUsualOnesOrTheChosen) {
  const auto usual = gpu_steps_to_run({}, 0);
  std::set<std::string> names;
  for (const StepSize& step : usual) names.insert(step.text());
  EXPECT_EQ(names, (std::set<std::string>{"decode/tokens1/ctx1K", "decode/tokens1/ctx32K",
                                          "decode/tokens64/ctx32K", "prefill/tokens8192/ctx0"}));
  EXPECT_EQ(gpu_steps_to_run({}, 5).size(), 6u);
  EXPECT_EQ(gpu_steps_to_run({.phases = {Phase::prefill}}, 5).size(), 1u);
  const auto chosen = gpu_steps_to_run({.phases = {Phase::decode}, .tokens = {3}}, 0);
  ASSERT_FALSE(chosen.empty());
  EXPECT_EQ(chosen[0].tokens, 3);
}

TEST(GpuLayers, AreAsManyAsFit) {
  const auto config = config_at(kReleased);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const int64_t fit = *layers_that_fit(*config, {}, 125'000'000'000);
  EXPECT_EQ(fit, 16);
  EXPECT_GT(*layers_that_fit(*config, 48, 125'000'000'000), 24);
  EXPECT_EQ(*layers_that_fit(*config, {}, 1), 1);
}

TEST(MadeWeights, AreOfTheirFormatsWhereverTheyLie) {
  const auto model = BenchModel::made(kNano, 3, {}, other_memory());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->config.n_layers, 3);
  EXPECT_FALSE(model->notes.empty());
  const LayerWeights& layer = model->weights.layers[0];
  const DenseMatrix& wq_b = layer.attention.wq_b;
  ASSERT_TRUE(wq_b.quantized());
  for (int64_t i = 0; i < wq_b.codes.elements(); ++i) {
    ASSERT_NE(wq_b.codes.data[i] & 0x7f, 0x7f) << "E4M3 NaN at " << i;
  }
  for (int64_t i = 0; i < wq_b.scales.elements(); ++i) {
    int exponent = 0;
    ASSERT_EQ(std::frexp(wq_b.scales.data[i], &exponent), 0.5f) << "no power of two at " << i;
  }
  ASSERT_EQ(std::ssize(layer.experts.experts), model->config.n_routed_experts);
  EXPECT_NE(layer.experts.experts[0].w1.codes.data, layer.experts.experts[1].w1.codes.data);
  EXPECT_EQ(model->name_of("linear", "", wq_b.codes.data), "linear.wq_b");
  EXPECT_EQ(model->name_of("moe_experts", "", nullptr), "experts");
  EXPECT_EQ(model->name_of("index_select", "use", nullptr), "index_select.use");
}

TEST(MadeWeights, GiveStepsThatStayFinite) {
  const auto model = BenchModel::made(kNano, {}, {}, host_memory());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const StepSize size{Phase::prefill, 70, 300};
  const SyntheticCaches caches(model->config, {.context = size.context, .tokens = size.tokens},
                               other_memory());
  std::vector<StepData> steps = steps_of(size, model->config);
  RandomWords random(1);
  steps[0].draw(random);
  const auto inputs = [&](const StepData& step) { return step.inputs(caches.page_table()); };
  meta::Queue plan;
  run_steps(plan, *model, caches.caches(), steps, inputs);
  ThreadTeam team(2);
  cpu::Queue queue(team, Isa::generic, Arena(plan.arena().peak()));
  const View<float> logits = run_steps(queue, *model, caches.caches(), steps, inputs);
  ASSERT_EQ(logits.elements(), model->config.vocab_size);
  for (int64_t i = 0; i < logits.elements(); ++i) {
    ASSERT_TRUE(std::isfinite(logits.data[i])) << i;
  }
}

TEST(RecordedStep, HoldsEveryOperationOfTheStep) {
  const auto model = BenchModel::made(kNano, {}, {}, host_memory());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const StepSize size{Phase::decode, 2, 300};
  const SyntheticCaches caches(model->config, {.sequences = 2, .context = 300});
  const std::vector<StepData> steps = steps_of(size, model->config);
  const auto inputs = [&](const StepData& step) { return step.inputs(caches.page_table()); };
  meta::Queue plan;
  plan.keep_tensors();
  run_steps(plan, *model, caches.caches(), steps, inputs);
  CallRecorder recorder;
  meta::Queue queue(Arena(plan.arena().peak()), recorder);
  queue.keep_tensors();
  run_steps(queue, *model, caches.caches(), steps, inputs);
  const auto calls = recorder.take(queue);
  ASSERT_EQ(calls.size(), plan.records().size());
  std::set<std::string> names;
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].record.operation, plan.records()[i].name);
    EXPECT_EQ(calls[i].record.shapes, plan.records()[i].shapes);
    EXPECT_EQ(calls[i].label, plan.records()[i].label);
    names.insert(
        model->name_of(calls[i].record.operation, calls[i].record.variant, calls[i].record.weight));
  }
  for (const char* name : {"linear.wq_b", "grouped_linear.wo_a", "experts", "head",
                           "sparse_attention.chosen", "index_select.build", "hyper_collapse"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(GpuRows, SayHowMuchLongerAStepIsThanItsOperations) {
  const auto model = BenchModel::made(kNano, 1, {}, host_memory());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Machine machine = gpu();
  Repetition repetition{.ranges = {{"layer 0", 3}}, .seconds = 4, .between_operations = 0.25};
  repetition.records.push_back({.operation = "moe_experts", .seconds = 2, .cost = {.flops = 300}});
  repetition.records.push_back({.operation = "route", .seconds = 1, .cost = {.flops = 100}});
  const std::vector<Row> rows = Summary(*model, machine).rows_of({}, {repetition});
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].between_operations, 0.25);
  EXPECT_NE(table_line(rows[0], Columns::limits).find("25% between operations"), std::string::npos);
  EXPECT_NE(table_line(rows[0], Columns::floors).find(" 62.5    1.6  fp8_wgmma"), std::string::npos)
      << table_line(rows[0], Columns::floors);
  EXPECT_EQ(rows[0].outside_streaming, 0.5);
  EXPECT_EQ(rows[0].percent_of_limit, 62.5);  // 1.5 s of FP8 products, 1 s of BF16's
}

}  // namespace
}  // namespace cachalot::bench
