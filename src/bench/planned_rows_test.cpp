#include "bench/planned_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/bench.h"

namespace cachalot::bench {
namespace {

bool any_can_match(const BenchModel& model, const std::vector<StepSize>& sizes,
                   const std::string& filter) {
  return std::ranges::any_of(
      sizes, [&](const StepSize& size) { return any_row_can_match(model, size, filter); });
}

TEST(PlannedRows, HoldTheNamesOfAllThatRun) {
  BenchOptions options;
  options.model = CACHALOT_SOURCE_DIR "/models/nano";
  options.threads = 2;
  options.steps = {.tokens = {1, 4}, .contexts = {0}};
  options.repeat = {.seconds = 0, .repetitions = 1};
  options.machine = {.seconds = 1e-3, .buffer_bytes = 8 << 20};
  options.answers = false;
  const auto report = run_bench(options);
  const auto model = BenchModel::open(options.model, std::nullopt);
  ASSERT_TRUE(report && model);
  const auto sizes = steps_to_run(options.steps, model->config.dspark_block_size);
  for (const Row& row : report->rows) {
    if (row.name.find("/picture/") != row.name.npos) continue;
    EXPECT_TRUE(any_can_match(*model, sizes, row.name)) << row.name;
  }
}

TEST(PlannedRows, AreThereWithoutWeights) {
  const auto model = BenchModel::planned(CACHALOT_SOURCE_DIR "/tests/data/released", 3, 16);
  ASSERT_TRUE(model) << model.error().message;
  const auto sizes = gpu_steps_to_run({}, 0);
  for (const char* filter :
       {"", "step", "layer.source/decode", "linear.wq_b/decode/tokens1", "experts", "ctx32K",
        "index_select/decode/tokens64/ctx32K", "*.wo_a/prefill/*", "linear.compressor_wkv"}) {
    EXPECT_TRUE(any_can_match(*model, sizes, filter)) << filter;
  }
  for (const char* filter : {"nonsense", "markov_step", "linear.wq_b/verify", "layer.index/",
                             "experts/decode/tokens3", "linear.main_proj"}) {
    EXPECT_FALSE(any_can_match(*model, sizes, filter)) << filter;
  }
}

}  // namespace
}  // namespace cachalot::bench
