#include "inspect/gpu_fit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot {
namespace {

ModelConfig released() {
  const auto config = load_config(CACHALOT_SOURCE_DIR "/tests/data/released");
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

const FitRequest kHost{
    .memory = int64_t{512} << 30, .context = 8192, .memory_bytes_per_second = 200e9};

// Spec, performance: 288.8 GB of backbone experts, 7.22 GB a layer, 9.8 GB of the rest, 35.4 MB of
// shared expert a layer.
TEST(GpuFit, PutsTheExpertsOfAsManyLayersOnOneGpuAsFit) {
  const auto fit =
      fit_gpu(released(), kHost, {.memory = 141'000'000'000, .bytes_per_second = 4e12});
  ASSERT_TRUE(fit) << fit.error().message;
  // Three draft stages, then layers of 7.255 GB each.
  const double left = 141e9 - 9.8e9 - 7.9e9 - static_cast<double>(fit->caches + fit->workspace);
  EXPECT_NEAR(static_cast<double>(fit->layers_on_gpu() - 3), left / 7.255e9, 1);
  EXPECT_LE(fit->placement.bytes + fit->caches + fit->workspace, 141'000'000'000);
  EXPECT_GT(fit->bytes_from_host, 0);
  // The sum is what a machine without a GPU reads.
  const double all = cachalot::fit(released(), kHost).bytes_from_memory;
  EXPECT_NEAR(fit->bytes_from_gpu + fit->bytes_from_host, all, 0.001 * all);
}

TEST(GpuFit, ReadsEverythingFromAGpuThatHoldsItAll) {
  const auto fit =
      fit_gpu(released(), kHost, {.memory = 600'000'000'000, .bytes_per_second = 4e12});
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_EQ(fit->layers_on_gpu(), 43);
  EXPECT_EQ(fit->bytes_from_host, 0);
  EXPECT_EQ(std::ranges::count(fit->placement.tables, true), 2);
  EXPECT_NEAR(fit->tokens_per_second, 4e12 / fit->bytes_from_gpu, 1e-6);
}

TEST(GpuFit, SaysWhatDoesNotFit) {
  const auto fit = fit_gpu(released(), kHost, {.memory = 10'000'000'000});
  ASSERT_FALSE(fit);
  EXPECT_NE(fit.error().message.find("do not fit in 10.0 GB"), std::string::npos)
      << fit.error().message;
}

}  // namespace
}  // namespace cachalot
