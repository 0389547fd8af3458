#include "checkpoint/tensor_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mapped_file.h"

namespace cachalot {
namespace {

const std::filesystem::path kSource = CACHALOT_SOURCE_DIR;

TEST(TensorTable, CountsWhatTheReleaseCounts) {
  const auto config = load_config(kSource / "tests/data/released");
  ASSERT_TRUE(config) << config.error().message;
  int64_t bytes = 0, parameters = 0, drafts = 0;
  const auto table = tensor_table(*config);
  for (const TensorSpec& spec : table) {
    bytes += spec.bytes();
    parameters += spec.parameters();
    drafts += spec.name.starts_with("mtp.");
  }
  EXPECT_EQ(table.size(), 96085u);
  EXPECT_EQ(drafts, 2401);
  EXPECT_EQ(bytes, 510286023000);
  EXPECT_EQ(parameters, 763205315794);
  EXPECT_EQ(table.back().shard, 47);
}

TEST(TensorTable, GivesTheReleasedComponents) {
  const auto config = load_config(kSource / "tests/data/released");
  ASSERT_TRUE(config);
  std::map<std::string, int64_t> bytes;
  for (const TensorSpec& spec : tensor_table(*config)) {
    const bool stack = spec.name.starts_with("layers.");
    if (stack && spec.name.find(".ffn.experts.") != std::string::npos)
      bytes["experts"] += spec.bytes();
    if (stack && spec.name.find(".hc_") != std::string::npos) bytes["hyper"] += spec.bytes();
    if (spec.name.find(".engram.embed.") != std::string::npos) bytes["tables"] += spec.bytes();
    if (spec.name.starts_with("vision.") || spec.name.starts_with("aligner.") ||
        spec.name.starts_with("image_")) {
      bytes["vision"] += spec.bytes();
    }
  }
  EXPECT_EQ(bytes["experts"], 288777830400);
  EXPECT_EQ(bytes["hyper"], 157295040);
  EXPECT_EQ(bytes["tables"], 202758032400);
  EXPECT_EQ(bytes["vision"], 970536960);
}

TEST(TensorTable, EqualsTheNamesOfTheCheckpointsAtHand) {
  for (const char* folder : {"tests/data/tiny-a", "tests/data/tiny-b", "models/nano"}) {
    const auto config = load_config(kSource / folder);
    ASSERT_TRUE(config) << config.error().message;
    const auto index =
        nlohmann::json::parse(*read_text_file(kSource / folder / "model.safetensors.index.json"));
    std::set<std::string> expected, found;
    for (const auto& item : index["weight_map"].items()) expected.insert(item.key());
    int64_t bytes = 0;
    for (const TensorSpec& spec : tensor_table(*config)) {
      found.insert(spec.name);
      bytes += spec.bytes();
    }
    EXPECT_EQ(found, expected) << folder;
    EXPECT_EQ(bytes, index["metadata"]["total_size"].get<int64_t>()) << folder;
  }
}

TEST(TensorTable, NamesTheScaleOfAMatrix) {
  EXPECT_EQ(scale_name_of("layers.0.attn.wq_a.weight"), "layers.0.attn.wq_a.scale");
}

}  // namespace
}  // namespace cachalot
