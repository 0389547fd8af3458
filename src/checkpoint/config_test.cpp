#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/test_folder.h"

namespace cachalot {
namespace {

using nlohmann::json;

const std::filesystem::path kSource = CACHALOT_SOURCE_DIR;
const std::filesystem::path kReleased = kSource / "tests/data/released";

json nested_json(const char* folder) {
  return json::parse(*read_text_file(kSource / folder / "config.json"));
}

// The message of the error that this change to the released config.json must give.
std::string error_of(const std::function<void(json&)>& change) {
  json config = nested_json("tests/data/released");
  change(config);
  const auto parsed = parse_config(config.dump(), "config.json");
  return parsed ? "accepted" : parsed.error().message;
}

TEST(Config, ReadsTheReleasedFiles) {
  const auto config = load_config(kReleased);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dim, 5120);
  EXPECT_EQ(config->n_layers, 40);
  EXPECT_EQ(config->compress_ratios.size(), 43u);
  EXPECT_EQ(config->norm_eps, 1e-20f);
  EXPECT_EQ(config->hc_eps, 1e-6f);
  EXPECT_EQ(config->gate_temp, 1.0f);
  EXPECT_EQ(config->original_seq_len, 65536);
  EXPECT_EQ(config->engram_num_embeddings, (std::vector<int64_t>{384006168, 384016682}));
  EXPECT_EQ(config->vision_min_pixels, 295936);
  EXPECT_FALSE(config->vision_max_wh_ratio);
  EXPECT_EQ(config->image_token_id, 129264);
  EXPECT_TRUE(config->unknown_keys.empty()) << config->unknown_keys[0];
}

TEST(Config, ReadsEveryCheckpointAtHandFromEitherForm) {
  for (const char* folder :
       {"tests/data/released", "tests/data/tiny-a", "tests/data/tiny-b", "models/nano"}) {
    const auto both = load_config(kSource / folder);
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_TRUE(both->unknown_keys.empty()) << both->unknown_keys[0];
    for (const char* name : {"config.json", "inference_config.json"}) {
      const auto one = parse_config(*read_text_file(kSource / folder / name), name);
      ASSERT_TRUE(one) << one.error().message;
      EXPECT_EQ(flat_config_text(*one), flat_config_text(*both)) << folder << "/" << name;
    }
  }
}

TEST(Config, WritesBothFormsSoThatTheyReadBack) {
  for (const char* folder : {"tests/data/released", "tests/data/tiny-b"}) {
    const auto config = load_config(kSource / folder);
    ASSERT_TRUE(config);
    const auto nested = parse_config(nested_config_text(*config), "nested");
    ASSERT_TRUE(nested) << nested.error().message;
    EXPECT_EQ(nested_config_text(*nested), nested_config_text(*config));
    const auto flat = parse_config(flat_config_text(*config), "flat");
    ASSERT_TRUE(flat) << flat.error().message;
    EXPECT_EQ(flat_config_text(*flat), flat_config_text(*config));
  }
}

TEST(Config, NamesTheOwnersOfALayer) {
  const auto config = load_config(kReleased);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->kv_source_of(0), -1);
  EXPECT_EQ(config->kv_source_of(2), 2);
  EXPECT_EQ(config->kv_source_of(7), 2);
  EXPECT_EQ(config->kv_source_of(39), 20);
  EXPECT_EQ(config->index_source_of(27), 24);
  EXPECT_EQ(config->index_source_of(40), -1);
  EXPECT_TRUE(config->is_index_source(36));
  EXPECT_FALSE(config->is_kv_source(36));
  EXPECT_EQ(config->engram_index(14), 1);
  EXPECT_EQ(config->engram_index(2), -1);
}

TEST(Config, RefusesValuesItWouldHaveToIgnore) {
  const std::pair<const char*, json> cases[] = {
      {"/model_type", "deepseek_v4"},
      {"/text_config/hidden_act", "gelu"},
      {"/text_config/attention_bias", true},
      {"/text_config/tie_word_embeddings", true},
      {"/text_config/num_key_value_heads", 2},
      {"/text_config/scoring_func", "softmax"},
      {"/text_config/topk_method", "greedy"},
      {"/text_config/norm_topk_prob", false},
      {"/text_config/rope_scaling/rope_type", "linear"},
      {"/text_config/n_shared_experts", 2},
      {"/quantization_config/weight_block_size", {128, 128}},
      {"/quantization_config/scale_fmt", "float"},
      {"/quantization_config/expert_dtype", "fp8"},
      {"/text_config/hidden_size", 5120.5},
      {"/text_config/hidden_size", "5120"},
      {"/text_config/hidden_size", 5136},
      {"/text_config/hidden_size", -32},
      {"/text_config/rms_norm_eps", 0},
      {"/text_config/rms_norm_eps", 1e-60},
      {"/text_config/compress_ratios", {0, 0}},
      {"/text_config/kv_source_layer_ids", {8, 2, 14, 20}},
      {"/text_config/kv_source_layer_ids", {3, 8, 14, 20}},
      {"/text_config/kv_source_layer_ids", {2, 8, 14, 21}},
      {"/text_config/index_source_layer_ids", {3, 8, 14, 20}},
      {"/text_config/candidate_source_layer_id", 21},
      {"/text_config/engram_vocab_size", 16000058},
      {"/text_config/engram_num_embeddings", {384006168, 384016681}},
      {"/text_config/engram_num_embeddings", {384006168}},
      {"/text_config/num_experts_per_tok", 385},
      {"/text_config/n_routed_experts", int64_t{1} << 40},
      {"/text_config/hc_mult", 9},
      {"/text_config/index_n_heads", 129},
      {"/text_config/compress_ratios/2", 65},
      {"/text_config/num_hidden_layers", int64_t{1} << 62},
      {"/text_config/dspark_target_layer_ids", {37, 38, 40}},
      {"/vision_config", "none"},
  };
  for (const auto& [path, value] : cases) {
    const std::string error =
        error_of([&](json& config) { config[json::json_pointer(path)] = value; });
    EXPECT_NE(error.find("expected"), std::string::npos) << path << ": " << error;
    EXPECT_NE(error.find("found"), std::string::npos) << path << ": " << error;
    EXPECT_NE(error.find("config.json"), std::string::npos) << path << ": " << error;
  }
}

// A page of the caches holds whole groups of every ratio.
TEST(Config, RefusesRatiosWithoutASmallCommonMultiple) {
  const std::string error = error_of([](json& config) {
    json& ratios = config["text_config"]["compress_ratios"];
    for (int layer = 2; layer < 40; ++layer) {
      ratios[layer] = layer < 8 ? 61 : layer < 14 ? 59 : layer < 20 ? 53 : 47;
    }
  });
  EXPECT_NE(error.find("least common multiple"), std::string::npos) << error;
}

TEST(Config, NamesAMissingKey) {
  EXPECT_EQ(error_of([](json& config) { config["text_config"].erase("q_lora_rank"); }),
            "config.json: text_config.q_lora_rank: missing");
  EXPECT_EQ(error_of([](json& config) { config["text_config"]["rope_scaling"].erase("factor"); }),
            "config.json: text_config.rope_scaling.factor: missing");
}

TEST(Config, ReadsMissingOptionalKeysAsTheReleaseDoes) {
  json document = nested_json("tests/data/released");
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) document.erase(key);
  document["text_config"].erase("n_shared_experts");
  document["vision_config"].erase("min_pixels");
  document["vision_config"].erase("max_wh_ratio");
  const auto config = parse_config(document.dump(), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bos_token_id, 0);
  EXPECT_EQ(config->eos_token_id, 1);
  EXPECT_EQ(config->pad_token_id, 2);
  EXPECT_EQ(config->n_shared_experts, 1);
  EXPECT_EQ(config->vision_min_pixels, 295936);
  EXPECT_FALSE(config->vision_max_wh_ratio);
}

TEST(Config, TakesZeroOriginalLengthAsNoYarnWhateverTheType) {
  json document = nested_json("tests/data/released");
  document["text_config"]["rope_scaling"]["original_max_position_embeddings"] = 0;
  document["text_config"]["rope_scaling"]["rope_type"] = "anything";
  const auto config = parse_config(document.dump(), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->has_yarn());
}

TEST(Config, ReportsUnknownKeysWithoutRefusingThem) {
  json document = nested_json("tests/data/released");
  document["text_config"]["brand_new"] = 1;
  const auto config = parse_config(document.dump(), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->unknown_keys, std::vector<std::string>{"config.json: text_config.brand_new"});
}

TEST(Config, RefusesFilesThatDisagree) {
  TestFolder folder;
  std::filesystem::copy(kReleased, folder.path());
  json flat = json::parse(*read_text_file(folder.path() / "inference_config.json"));
  flat["n_heads"] = 32;
  folder.write("inference_config.json", flat.dump());
  const auto config = load_config(folder.path());
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("n_heads is 32; the files must agree"), std::string::npos)
      << config.error().message;
}

TEST(Config, RefusesBrokenJson) {
  for (const char* text : {"", "[]", "{", "{\"text_config\": 3}", "{\"a\":1,\"a\":2}", "\xff"}) {
    EXPECT_FALSE(parse_config(text, "config.json")) << text;
  }
  EXPECT_FALSE(parse_config(std::string(200000, '[') + std::string(200000, ']'), "config.json"));
  std::string nested;
  for (int i = 0; i < 20000; ++i) nested += "{\"a\":";
  EXPECT_FALSE(parse_config(nested, "config.json"));
}

}  // namespace
}  // namespace cachalot
