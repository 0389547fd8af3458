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
  // Shared experts, three draft stages, then layers of 7.22 GB each and a part of one.
  const double left =
      141e9 - 9.8e9 - 43 * 35.4e6 - 7.9e9 - static_cast<double>(fit->caches + fit->workspace);
  EXPECT_NEAR(static_cast<double>(fit->layers_on_gpu() - 3), left / 7.22e9, 1);
  EXPECT_NEAR(fit->choices_on_gpu, left / 288.8e9, 0.01);
  EXPECT_LE(fit->placement.bytes + fit->caches + fit->workspace, 141'000'000'000);
  EXPECT_GT(fit->bytes_from_host, 0);
  // The sum is what a machine without a GPU reads.
  const double all = cachalot::fit(released(), kHost).bytes_from_memory;
  EXPECT_NEAR(fit->bytes_from_gpu + fit->bytes_from_host, all, 0.001 * all);
}

TEST(GpuFit, EstimatesAPlacementAnewWithAnotherHost) {
  const GpuFitRequest request{.memory = 141'000'000'000, .bytes_per_second = 4e12};
  FitRequest unknown = kHost;
  unknown.memory_bytes_per_second = 0;
  auto later = fit_gpu(released(), unknown, request);
  const auto at_once = fit_gpu(released(), kHost, request);
  ASSERT_TRUE(later && at_once);
  EXPECT_EQ(later->tokens_per_second, 0);
  estimate_speed(*later, released(), kHost, request);
  EXPECT_EQ(later->tokens_per_second, at_once->tokens_per_second);
  EXPECT_EQ(later->bytes_from_gpu, at_once->bytes_from_gpu);
  EXPECT_EQ(later->bytes_from_host, at_once->bytes_from_host);
  EXPECT_EQ(later->choices_on_gpu, at_once->choices_on_gpu);
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

// Half of all choices are eight experts of each layer.
ExpertProfile skewed(const ModelConfig& config) {
  ExpertProfile profile;
  profile.tokens.assign(static_cast<size_t>(config.n_layers),
                        std::vector<int64_t>(static_cast<size_t>(config.n_routed_experts), 8));
  profile.tokens.resize(
      static_cast<size_t>(config.n_layers + config.n_mtp_layers),
      std::vector<int64_t>(static_cast<size_t>(config.dspark_n_routed_experts), 8));
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    std::vector<int64_t>& counts = profile.tokens[static_cast<size_t>(layer)];
    for (size_t e = 100; e < 108; ++e) counts[e] = config.n_routed_experts - 8;
  }
  return profile;
}

TEST(GpuFit, PutsTheProfilesHottestExpertsThereFirst) {
  const ModelConfig config = released();
  const ExpertProfile profile = skewed(config);
  GpuFitRequest request{.memory = 60'000'000'000, .bytes_per_second = 4e12};
  const auto plain = fit_gpu(config, kHost, request);
  request.profile = &profile;
  const auto fit = fit_gpu(config, kHost, request);
  ASSERT_TRUE(plain && fit);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    const std::vector<bool>& placed = fit->placement.experts[static_cast<size_t>(layer)];
    EXPECT_TRUE(std::all_of(placed.begin() + 100, placed.begin() + 108, std::identity()));
  }
  EXPECT_LT(fit->layers_on_gpu(), plain->layers_on_gpu());
  EXPECT_GT(fit->choices_on_gpu, 0.5);
  EXPECT_LT(plain->choices_on_gpu, 0.2);
  EXPECT_LT(fit->bytes_from_host, plain->bytes_from_host);
  EXPECT_GT(fit->tokens_per_second, 1.5 * plain->tokens_per_second);
}

TEST(GpuFit, ReadsStreamedExpertsOverTheBus) {
  const GpuFitRequest request{.memory = 141'000'000'000,
                              .bytes_per_second = 4e12,
                              .experts_on = ExpertsOn::streamed,
                              .bus_bytes_per_second = 50e9};
  const auto fit = fit_gpu(released(), kHost, request);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_GT(fit->bytes_from_host, 0);
  const double over_the_bus = fit->bytes_from_host / 50e9;
  EXPECT_GT(1 / fit->tokens_per_second, over_the_bus);
  EXPECT_LT(1 / fit->tokens_per_second, 1.1 * over_the_bus);
}

// 35.4 MB of a layer while the CPU reads six experts of 18.8 MB from slower memory: no time at all.
TEST(GpuFit, LetsTheGpuComputeTheSharedExpertBesideTheHostsExperts) {
  const GpuFitRequest request{
      .memory = 141'000'000'000, .bytes_per_second = 4e12, .experts_on = ExpertsOn::cpu};
  const auto fit = fit_gpu(released(), kHost, request);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_EQ(fit->placement.experts_placed(), 0);
  const double shared = 40 * 35.4e6;
  const double seconds = (fit->bytes_from_gpu - shared) / 4e12 + fit->bytes_from_host / 200e9;
  EXPECT_NEAR(1 / fit->tokens_per_second, seconds, 1e-3 * shared / 4e12);
}

TEST(GpuFit, ReadsFromDiskWhatTheHostDoesNotHold) {
  const GpuFitRequest request{.memory = 141'000'000'000, .bytes_per_second = 4e12};
  FitRequest host = kHost;
  host.disk_bytes_per_second = 5e9;
  const auto fit_with = [&](int64_t memory) {
    host.memory = memory;
    return fit_gpu(released(), host, request);
  };
  const auto roomy = fit_with(400'000'000'000), tight = fit_with(100'000'000'000);
  ASSERT_TRUE(roomy && tight);
  EXPECT_EQ(roomy->host.experts_on_disk, 0);
  EXPECT_EQ(tight->host.in_memory(), 100'000'000'000);
  EXPECT_EQ(tight->host.resident, 0);
  const double missed =
      1 - 100e9 / static_cast<double>(tight->experts_of_host);  // the GPU has the draft stages'
  EXPECT_NEAR(tight->bytes_from_disk, missed * tight->bytes_from_host, 0.001 * 1e9);
  EXPECT_NEAR(1 / tight->tokens_per_second,
              1 / roomy->tokens_per_second + missed * tight->bytes_from_host / 5e9, 2e-3);
  EXPECT_TRUE(fit_with(2'000'000'000)->host.fits);
  EXPECT_FALSE(fit_with(6 * 18'800'640 - 1)->host.fits);
  EXPECT_EQ(fit_with(6 * 18'800'640 - 1)->tokens_per_second, 0);
  host.disk_bytes_per_second = 0;
  EXPECT_EQ(fit_with(100'000'000'000)->tokens_per_second, 0);
  EXPECT_EQ(fit_with(400'000'000'000)->tokens_per_second > 0, true);
}

// Draft stages' experts are read for every block of drafts.
TEST(GpuFit, KeepsTheDraftStagesExpertsOfTheHostInItsMemory) {
  const GpuFitRequest request{
      .memory = 141'000'000'000, .bytes_per_second = 4e12, .experts_on = ExpertsOn::cpu};
  FitRequest host = kHost;
  host.memory = 2'000'000'000;
  auto fit = fit_gpu(released(), host, request);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_GT(fit->host.resident, 2'000'000'000);
  EXPECT_FALSE(fit->host.fits);
  host.drafts = false;
  fit = fit_gpu(released(), host, request);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_TRUE(fit->host.fits);
}

TEST(GpuFit, SaysWhatDoesNotFit) {
  const auto message = [](int64_t memory, int64_t sequences) {
    FitRequest host = kHost;
    host.sequences = sequences;
    const auto fit = fit_gpu(released(), host, {.memory = memory});
    EXPECT_FALSE(fit);
    return fit ? std::string() : fit.error().message;
  };
  const auto ends = [](const std::string& text) { return text.substr(text.find(" in all, ")); };
  EXPECT_EQ(
      ends(message(10'000'000'000, 1)),
      " in all, do not fit in 10.0 GB (--gpu-memory): the model needs a GPU with more memory, "
      "or none (--device cpu)");
  EXPECT_EQ(ends(message(500'000'000, 1)),
            " in all, do not fit in 500.0 MB (--gpu-memory): the model needs a GPU with more "
            "memory, or none (--device cpu)");
  EXPECT_EQ(ends(message(30'000'000'000, 4096)),
            " in all, do not fit in 30.0 GB (--gpu-memory): a shorter --context or fewer sequences "
            "take less");
}

TEST(GpuFit, TellsSizesApartThatDifferByAByte) {
  const ModelConfig config = released();
  const FitRequest host{.context = 1024, .sequences = 1};
  const auto fit_in = [&](int64_t memory) {
    return fit_gpu(config, host, {.memory = memory, .experts_on = ExpertsOn::cpu});
  };
  const auto roomy = fit_in(int64_t{1} << 37);
  ASSERT_TRUE(roomy.has_value()) << roomy.error().message;
  const int64_t needed = roomy->placement.bytes + roomy->caches + roomy->workspace;
  EXPECT_TRUE(fit_in(needed).has_value());
  const auto tight = fit_in(needed - 1);
  ASSERT_FALSE(tight.has_value());
  EXPECT_NE(
      tight.error().message.find(fmt::format(" in all, do not fit in {} bytes (", needed - 1)),
      std::string::npos)
      << tight.error().message;
}

}  // namespace
}  // namespace cachalot
