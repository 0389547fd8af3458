// `bench --device cuda` on the GPU itself, with the sizes of the model that comes with the project.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/bench.h"

namespace cachalot::bench {
namespace {

TEST(GpuBench, MeasuresTheGpuAndEveryPhase) {
  BenchOptions options{.model = CACHALOT_SOURCE_DIR "/models/nano", .gpu = true};
  options.repeat.repetitions = 1;
  options.steps = {.tokens = {6}, .contexts = {0, 600}};
  const auto report = run_bench(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Machine& gpu = report->machine;
  EXPECT_GT(gpu.multiprocessors, 0);
  // Far apart on purpose: other Hopper GPUs, and others on this one.
  EXPECT_GT(gpu.read_bytes_per_second, 1e12);
  EXPECT_GT(gpu.copy_bytes_per_second, 1e12);
  EXPECT_GT(gpu.peak("fp32_fma"), 1e13);
  EXPECT_GT(gpu.peak("bf16_wgmma"), 1e14);
  EXPECT_GT(gpu.peak("fp8_wgmma"), gpu.peak("bf16_wgmma"));
  EXPECT_GT(gpu.launch_seconds, 0);
  EXPECT_LT(gpu.launch_seconds, 1e-4);
  for (const Row& row : report->rows) {
    EXPECT_GT(row.best_seconds, 0) << row.name;
    EXPECT_LT(row.seconds, 1) << row.name;
    EXPECT_GT(row.bytes, 0) << row.name;
    EXPECT_FALSE(row.limit.empty()) << row.name;
  }
  for (const char* name :
       {"step/decode/tokens6/ctx0", "step/prefill/tokens6/ctx600", "step/draft/tokens6/ctx0",
        "step/verify/tokens6/ctx600", "step/shortcut/tokens6/ctx600",
        "layer.source/decode/tokens6/ctx600", "experts/decode/tokens6",
        "linear.wq_b/prefill/tokens6", "markov_step/draft/tokens6"}) {
    EXPECT_TRUE(std::ranges::any_of(report->rows, [&](const Row& row) { return row.name == name; }))
        << name;
  }
}

// More rows than are captured as one graph per kind of operation.
TEST(GpuBench, TimesLongStepsCallByCall) {
  BenchOptions options{.model = CACHALOT_SOURCE_DIR "/models/nano", .gpu = true};
  options.repeat.repetitions = 1;
  options.steps = {.phases = {Phase::prefill}, .tokens = {600}, .contexts = {0}};
  const auto report = run_bench(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Row& step = report->rows.front();
  EXPECT_EQ(step.name, "step/prefill/tokens600/ctx0");
  EXPECT_TRUE(step.between_operations.has_value());
}

}  // namespace
}  // namespace cachalot::bench
