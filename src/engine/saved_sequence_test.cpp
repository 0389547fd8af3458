// What a saved state of the released model takes: the figures of docs/prefix_cache.md.
#include "engine/saved_sequence.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/config.h"

namespace cachalot {
namespace {

ModelConfig released_config() {
  auto config = load_config(std::filesystem::path(CACHALOT_SOURCE_DIR) / "tests/data/released");
  if (!config) throw std::runtime_error(config.error().message);
  return std::move(*config);
}

TEST(SavedSequence, TakesThreeMegabytesAndALastPageOfTheReleasedModel) {
  const ModelConfig config = released_config();
  const Caches caches(config, {.slots = 1, .max_context = 512, .pages = 1});
  const auto bytes = [&](int64_t length) {
    return copied_bytes(caches, {.length = length, .written = length, .upper_length = length});
  };
  constexpr int64_t kWindows = 43 * 136 * 528, kOpenRows = 3 * 9 * 4096;
  EXPECT_EQ(page_bytes(caches), 256 * 894);
  EXPECT_EQ(bytes(256), kWindows + kOpenRows);
  EXPECT_EQ(bytes(512), 3198336);
  EXPECT_EQ(bytes(511), 3198336 + 227436);
  EXPECT_EQ(bytes(1), 43 * 528 + 3 * 4096 + 288 + 68 + 4);
}

}  // namespace
}  // namespace cachalot
