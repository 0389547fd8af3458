#include "checkpoint/synth.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"
#include "base/number_formats.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_folder.h"

namespace cachalot {
namespace {

const std::filesystem::path kData = std::filesystem::path(CACHALOT_SOURCE_DIR) / "tests/data";

ModelConfig reduced(const char* folder, const SynthReduction& reduction) {
  const auto config = config_at(kData / folder);
  CACHALOT_CHECK(config.has_value(), "{}", config.error().message);
  const auto result = reduced_config(*config, reduction);
  CACHALOT_CHECK(result.has_value(), "{}", result.error().message);
  return *result;
}

TEST(Synth, CutsLayersSourcesTargetsAndEngrams) {
  const ModelConfig ten = reduced("released", {.layers = 10, .experts = 4, .engram_rows = 1000});
  EXPECT_EQ(ten.kv_source_layers, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(ten.index_source_layers, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(ten.candidate_source_layer, -1);
  EXPECT_EQ(ten.engram_layer_ids, std::vector<int64_t>{1});
  EXPECT_EQ(ten.compress_ratios, (std::vector<int64_t>{0, 0, 2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_FALSE(ten.has_drafts());
  EXPECT_EQ(ten.n_activated_experts, 4);

  const ModelConfig drafts = reduced("released", {.layers = 38, .experts = 64, .engram_rows = 50});
  EXPECT_EQ(drafts.n_mtp_layers, 3);
  EXPECT_EQ(drafts.dspark_target_layer_ids, std::vector<int64_t>{37});
  EXPECT_EQ(drafts.dspark_n_routed_experts, 64);
  EXPECT_EQ(drafts.compress_ratios.size(), 41u);
  EXPECT_EQ(drafts.candidate_source_layer, 20);
}

TEST(Synth, ShrinksEngramTablesBelowAGigabyteUnlessTold) {
  const ModelConfig config = reduced("released", {});
  int64_t bytes = 0;
  for (int64_t rows : config.engram_num_embeddings) bytes += rows * 264;
  EXPECT_LE(bytes, kEngramBytes);
  EXPECT_GE(bytes, kEngramBytes * 95 / 100);
  EXPECT_EQ(reduced("released", {.engram_rows = 16000000}).engram_num_embeddings,
            (std::vector<int64_t>{384006168, 384016682}));
  EXPECT_EQ(reduced("tiny-a", {}).engram_num_embeddings, (std::vector<int64_t>{3144, 3424}));
}

TEST(Synth, RefusesNumbersOutOfRange) {
  const auto config = config_at(kData / "released/config.json");
  ASSERT_TRUE(config);
  EXPECT_FALSE(reduced_config(*config, {.layers = 41}));
  EXPECT_FALSE(reduced_config(*config, {.layers = 0}));
  EXPECT_FALSE(reduced_config(*config, {.experts = 0}));
  EXPECT_FALSE(reduced_config(*config, {.engram_rows = 1}));
  EXPECT_FALSE(config_at(kData / "released/no.json"));
}

TEST(Synth, WritesTheReleasedShapesAtTwoLayers) {
  ModelConfig config = reduced("released", {.layers = 2, .experts = 4, .engram_rows = 100});
  config.vocab_size = 2048;  // the vocabulary's matrices alone would be 2.6 GB
  config.image_token_id = 4;
  config.engram_compressed_vocab_size = 2048;
  config.vision_n_layers = 1;
  const auto layout = reduced_config(config, {.engram_rows = 100});
  ASSERT_TRUE(layout) << layout.error().message;
  const TestFolder folder;
  const auto out = folder.path() / "model";
  const auto written = write_random_checkpoint(*layout, out, kData / "tiny-a", {.seed = 7});
  ASSERT_TRUE(written) << written.error().message;
  const auto checkpoint = Checkpoint::open(out, {.verify = true});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->warnings().empty());
  EXPECT_TRUE(std::filesystem::exists(out / "tokenizer.json"));
  // vision; embed; two layers; head; one engram table
  EXPECT_TRUE(std::filesystem::exists(out / "model-00006-of-00006.safetensors"));
  EXPECT_EQ(checkpoint->at("layers.1.engram.wkv.weight").file, "model-00006-of-00006.safetensors");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.partial"));
}

TEST(Synth, LeavesNothingBehindWhenCancelled) {
  const TestFolder folder;
  int asked = 0;
  SynthOptions options;
  options.cancelled = [&] { return ++asked == 3; };
  const auto written =
      write_random_checkpoint(reduced("tiny-b", {}), folder.path() / "model", "", options);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "interrupted");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Synth, WritesTheSameBytesWithAnyNumberOfThreads) {
  const ModelConfig config = reduced("tiny-b", {});
  const TestFolder folder;
  const auto write = [&](const char* name, uint64_t seed, int threads) {
    const auto written = write_random_checkpoint(config, folder.path() / name, "",
                                                 {.seed = seed, .threads = threads});
    CACHALOT_CHECK(written.has_value(), "{}", written.error().message);
    return *read_text_file(folder.path() / name / "model-00003-of-00010.safetensors");
  };
  const std::string one = write("one", 1, 1);
  EXPECT_EQ(write("three", 1, 3), one);
  EXPECT_NE(write("other", 2, 3), one);
  EXPECT_FALSE(write_random_checkpoint(config, folder.path() / "one", "", {}));
}

// Root mean square of a quantized matrix's values, in units of 1 / sqrt(columns).
double dense_gain(const Checkpoint& checkpoint, const std::string& name) {
  const auto codes = checkpoint.at(name + ".weight").view<uint8_t>();
  const auto scales = checkpoint.at(name + ".scale").view<uint8_t>();
  double sum = 0;
  for (int64_t row = 0; row < codes.extent(0); ++row) {
    for (int64_t column = 0; column < codes.extent(1); ++column) {
      const double value =
          e4m3_to_float(codes.row(row)[column]) * e8m0_to_float(scales.row(row / 32)[column / 32]);
      sum += value * value;
    }
  }
  return std::sqrt(sum / static_cast<double>(codes.extent(0)));
}

TEST(Synth, KeepsMatricesAtTheirGain) {
  const TestFolder folder;
  const auto out = folder.path() / "model";
  ASSERT_TRUE(write_random_checkpoint(reduced("tiny-a", {}), out, "", {}));
  const auto checkpoint = Checkpoint::open(out);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  // Few tiles, each of one of two scales: a sum over them scatters by some 25 %.
  EXPECT_NEAR(dense_gain(*checkpoint, "layers.0.attn.wq_a"), 1.0, 0.4);
  EXPECT_NEAR(dense_gain(*checkpoint, "layers.0.attn.wq_b"), 1.5, 0.5);
  EXPECT_NEAR(dense_gain(*checkpoint, "layers.0.attn.wo_b"), 0.5, 0.2);
  const auto norm = checkpoint->at("layers.0.attn_norm.weight").view<bf16>();
  double mean = 0;
  for (int64_t i = 0; i < norm.elements(); ++i) mean += to_float(norm.data[i]);
  EXPECT_NEAR(mean / static_cast<double>(norm.elements()), 1.0, 0.1);
  const auto base = checkpoint->at("layers.0.hc_attn_base").view<float>();
  EXPECT_NEAR(base.data[8], 3.0, 1.5);
  EXPECT_NEAR(base.data[9], 0.0, 1.5);
}

}  // namespace
}  // namespace cachalot
