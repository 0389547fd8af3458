#include "inspect/fit.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cachalot {
namespace {

ModelConfig released() {
  const auto config = load_config(CACHALOT_SOURCE_DIR "/tests/data/released");
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

int64_t weights_read(const ModelConfig& config) {
  int64_t total = 0;
  for (const FitPart& part : checkpoint_parts(config)) total += part.bytes_per_token;
  return total;
}

// Numbers: spec, performance, 1 and 2.
TEST(Fit, ReadsPerTokenWhatTheReleaseReads) {
  const ModelConfig config = released();
  EXPECT_EQ(weights_read(config), 13'035'097'920);
  EXPECT_EQ(weights_read(config) + cache_bytes_read(config, 1024), 13'043'857'216);
  EXPECT_EQ(weights_read(config) + cache_bytes_read(config, 131072), 13'070'143'296);
  EXPECT_EQ(weights_read(config) + cache_bytes_read(config, 1048576), 13'226'118'976);
}

TEST(Fit, CountsEveryTensorOfTheRelease) {
  int64_t bytes = 0, experts = 0;
  for (const FitPart& part : checkpoint_parts(released())) {
    bytes += part.bytes;
    if (part.kind == FitPart::Kind::experts) experts += part.bytes;
  }
  EXPECT_EQ(bytes, 510'286'023'000);
  EXPECT_EQ(experts, int64_t{40} * 384 * 18'800'640);
}

// Spec, performance, 4: 30.94 GFLOP per token with the FP32 part.
TEST(Fit, CountsTheWorkOfAPromptToken) { EXPECT_NEAR(weight_flops(released()), 30.94e9, 0.05e9); }

TEST(Fit, KeepsAllInALargeMachine) {
  const Fit large = fit(released(), {.memory = int64_t{768} << 30,
                                     .context = 131072,
                                     .memory_bytes_per_second = 400e9,
                                     .operations_per_second = 30e12});
  EXPECT_TRUE(large.fits);
  EXPECT_EQ(large.experts_on_disk, 0);
  EXPECT_EQ(large.rows_on_disk, 0);
  EXPECT_EQ(large.bytes_from_disk, 0);
  EXPECT_NEAR(large.tokens_per_second, 400e9 / 13.070143296e9, 1e-6);
  EXPECT_NEAR(large.prompt_tokens_per_second, 970, 10);
}

TEST(Fit, LeavesOnDiskWhatDoesNotFit) {
  const Fit small = fit(released(), {.memory = int64_t{128} << 30,
                                     .context = 8192,
                                     .memory_bytes_per_second = 100e9,
                                     .disk_bytes_per_second = 10e9});
  EXPECT_TRUE(small.fits);
  EXPECT_EQ(small.in_memory(), int64_t{128} << 30);
  EXPECT_EQ(small.rows_in_memory, 0);
  const double missed = static_cast<double>(small.experts_on_disk) / (40.0 * 384 * 18'800'640);
  EXPECT_NEAR(small.bytes_from_disk, 4'512'153'600 * missed + 22'912, 1e3);
  EXPECT_NEAR(small.tokens_per_second,
              1 / (small.bytes_from_memory / 100e9 + small.bytes_from_disk / 10e9), 1e-9);
}

// A token looks up some kilobytes of the tables: no reason to ask for the disk's speed.
TEST(Fit, NeedsNoDisksSpeedWhereAllExpertsAreInMemory) {
  FitRequest request{.memory = 400'000'000'000, .context = 8192, .memory_bytes_per_second = 100e9};
  const Fit fit_in_memory = fit(released(), request);
  EXPECT_EQ(fit_in_memory.experts_on_disk, 0);
  EXPECT_GT(fit_in_memory.rows_on_disk, 0);
  EXPECT_NEAR(fit_in_memory.tokens_per_second, 100e9 / fit_in_memory.bytes_from_memory, 1e-9);
  request.disk_bytes_per_second = 1e9;
  EXPECT_LT(fit(released(), request).tokens_per_second, fit_in_memory.tokens_per_second);
  request.memory = 200'000'000'000;
  request.disk_bytes_per_second = 0;
  EXPECT_EQ(fit(released(), request).tokens_per_second, 0);
}

TEST(Fit, SaysWhenTheResidentPartDoesNotFit) {
  const Fit tiny = fit(released(), {.memory = int64_t{8} << 30,
                                    .context = 8192,
                                    .memory_bytes_per_second = 100e9,
                                    .disk_bytes_per_second = 10e9});
  EXPECT_FALSE(tiny.fits);
  EXPECT_GT(tiny.least_memory, int64_t{8} << 30);
  EXPECT_EQ(tiny.tokens_per_second, 0);
}

TEST(Fit, ReadsMoreExpertsForMoreSequences) {
  // Spec, performance, 2: 45.5 of 384 experts for 8 sequences.
  const FitRequest request{.memory = int64_t{768} << 30,
                           .context = 1024,
                           .sequences = 8,
                           .memory_bytes_per_second = 100e9};
  const Fit eight = fit(released(), request);
  EXPECT_NEAR(eight.bytes_from_memory, 42.71e9 + 8 * 8.76e6, 0.03e9);
}

}  // namespace
}  // namespace cachalot
