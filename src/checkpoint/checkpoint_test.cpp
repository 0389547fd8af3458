#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {
namespace {

const std::filesystem::path kSource = CACHALOT_SOURCE_DIR;
constexpr const char* kFirst = "model-00001-of-00003.safetensors";
constexpr const char* kSecond = "model-00002-of-00003.safetensors";
constexpr const char* kOnly = "model-00001-of-00001.safetensors";  // of tiny-b

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Checkpoint, OpensTheCheckpointsAtHand) {
  for (const char* folder : {"tests/data/tiny-a", "tests/data/tiny-b", "models/nano"}) {
    const auto checkpoint = Checkpoint::open(kSource / folder);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto table = tensor_table(checkpoint->config());
    ASSERT_EQ(checkpoint->tensors().size(), table.size());
    for (const TensorSpec& spec : table) {
      const TensorEntry* entry = checkpoint->find(spec.name);
      ASSERT_NE(entry, nullptr) << spec.name;
      EXPECT_EQ(entry->dtype, spec.dtype);
      EXPECT_EQ(entry->shape, spec.shape);
      EXPECT_EQ(static_cast<int64_t>(entry->bytes.size()), spec.bytes());
      const auto address = reinterpret_cast<uintptr_t>(entry->bytes.data());
      EXPECT_EQ(address % static_cast<size_t>(size_of(entry->dtype)), 0u) << spec.name;
    }
    EXPECT_EQ(checkpoint->find("no.such.tensor"), nullptr);
    EXPECT_TRUE(checkpoint->warnings().empty()) << checkpoint->warnings()[0];
  }
}

TEST(Checkpoint, GivesTheBytesOfTheFile) {
  const auto checkpoint = Checkpoint::open(kSource / "tests/data/tiny-b");
  ASSERT_TRUE(checkpoint);
  const DamagedCheckpoint copy("tiny-b");
  const auto shard = copy.read_shard(kOnly);
  for (const TensorEntry& entry : checkpoint->tensors()) {
    const std::vector<size_t> offsets = shard.header[entry.name]["data_offsets"];
    ASSERT_EQ(
        std::string_view(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()),
        std::string_view(shard.data).substr(offsets[0], offsets[1] - offsets[0]))
        << entry.name;
  }
}

TEST(Checkpoint, OpensWithoutAnIndex) {
  const DamagedCheckpoint copy;
  copy.remove(DamagedCheckpoint::kIndex);
  EXPECT_EQ(copy.error(), "opened");
}

TEST(Checkpoint, OpensNamesTheConverterAccepts) {
  const DamagedCheckpoint copy("tiny-b");
  auto shard = copy.read_shard(kOnly);
  auto index = copy.index();
  nlohmann::ordered_json header;
  nlohmann::json map;
  const auto swap = [](std::string text, std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    return at == text.npos ? text : text.replace(at, from.size(), to);
  };
  for (const auto& item : shard.header.items()) {
    std::string name = swap(swap(item.key(), ".attn.", ".self_attn."), ".ffn.", ".mlp.");
    name = "model." + swap(swap(name, ".gate.bias", ".gate.e_score_correction_bias"), ".scale",
                           ".weight_scale_inv");
    header[name] = item.value();
    map[name] = kOnly;
  }
  const std::string draft_copy = "mtp.0.embed.weight";
  header[draft_copy] = {{"dtype", "BF16"},
                        {"shape", {2}},
                        {"data_offsets", {shard.data.size(), shard.data.size() + 4}}};
  map[draft_copy] = kOnly;
  index["weight_map"] = map;
  index["metadata"]["total_size"] = index["metadata"]["total_size"].get<int64_t>() + 4;
  copy.write_shard(kOnly, {header, shard.data + "1234"});
  copy.write_index(index);
  EXPECT_EQ(copy.error(), "opened");
}

TEST(Checkpoint, NamesATruncatedShardItsSizesAndTheFirstTensorHit) {
  for (int64_t cut : {1, 17, 4096}) {
    const DamagedCheckpoint copy;
    const int64_t whole = copy.size(kSecond);
    const auto header = copy.read_shard(kSecond).header;
    copy.truncate(kSecond, whole - cut);
    const std::string error = copy.error();
    EXPECT_SAYS(error, kSecond);
    EXPECT_SAYS(error, fmt::format("expected {} bytes, found {}", whole, whole - cut));
    std::string hit;
    int64_t lowest = INT64_MAX;
    int64_t end_of_data = 0;
    for (const auto& item : header.items()) {
      end_of_data = std::max(end_of_data, item.value()["data_offsets"][1].get<int64_t>());
    }
    for (const auto& item : header.items()) {
      const std::vector<int64_t> offsets = item.value()["data_offsets"];
      if (offsets[1] > end_of_data - cut && offsets[0] < lowest) {
        lowest = offsets[0];
        hit = item.key();
      }
    }
    EXPECT_SAYS(error, "first tensor hit: " + hit);
  }
}

TEST(Checkpoint, RefusesAFileCutInItsHeader) {
  for (int64_t size : {0, 7, 8, 100}) {
    const DamagedCheckpoint copy;
    copy.truncate(kSecond, size);
    const std::string error = copy.error();
    EXPECT_SAYS(error, kSecond);
    EXPECT_SAYS(error, "truncated: expected at least");
    EXPECT_SAYS(error, fmt::format("found {}", size));
    EXPECT_SAYS(error, "first tensor expected in it: ");
  }
}

TEST(Checkpoint, ListsMissingShards) {
  const DamagedCheckpoint copy;
  copy.remove(kSecond);
  const std::string error = copy.error();
  EXPECT_SAYS(error, "missing 1 file (model-00002-of-00003.safetensors)");
  EXPECT_SAYS(error, " 267 tensors (");
}

TEST(Checkpoint, HoldsTheIndexAgainstTheShards) {
  const DamagedCheckpoint dropped;
  auto index = dropped.index();
  index["weight_map"].erase("norm.weight");
  dropped.write_index(index);
  EXPECT_SAYS(dropped.error(), "missing from the index: 1 tensor (norm.weight in model-000");

  const DamagedCheckpoint invented;
  index = invented.index();
  index["weight_map"]["layers.99.attn.wq_a.weight"] = kFirst;
  invented.write_index(index);
  EXPECT_SAYS(invented.error(), "missing from shards: 1 tensor (layers.99.attn.wq_a.weight in ");

  const DamagedCheckpoint moved;
  index = moved.index();
  index["weight_map"]["embed.weight"] = kSecond;
  moved.write_index(index);
  EXPECT_SAYS(moved.error(),
              "embed.weight in model-00002-of-00003.safetensors: it is in model-00001");

  const DamagedCheckpoint resized;
  index = resized.index();
  index["metadata"]["total_size"] = 4767951;
  resized.write_index(index);
  EXPECT_SAYS(resized.error(),
              "total_size: expected 4767952, the bytes of all tensors, found 4767951");
}

TEST(Checkpoint, RefusesABadIndex) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not valid JSON at byte 2: parse error"},
      {"[]", "found a list"},
      {"{}", "expected a weight_map"},
      {"{\"weight_map\": 3}", "weight_map"},
      {"{\"weight_map\": {\"a\": 3}}", "expected a file name"},
      {"{\"weight_map\": {\"a\": \"../b.safetensors\"}}", "a .safetensors file in this folder"},
      {"{\"weight_map\": {\"a\": \"b.safetensors\", \"a\": \"c.safetensors\"}}", "indexed twice"},
      {"{\"metadata\": {\"total_size\": 1.5}, \"weight_map\": {}}", "total_size"},
  };
  for (const auto& [text, part] : cases) {
    const DamagedCheckpoint copy;
    copy.write(DamagedCheckpoint::kIndex, text);
    const std::string error = copy.error();
    EXPECT_SAYS(error, part);
    EXPECT_SAYS(error, DamagedCheckpoint::kIndex);
  }
}

TEST(Checkpoint, RefusesATensorInTwoShards) {
  const DamagedCheckpoint copy;
  auto shard = copy.read_shard(kSecond);
  shard.header["norm.weight"] = {{"dtype", "BF16"},
                                 {"shape", {128}},
                                 {"data_offsets", {shard.data.size(), shard.data.size() + 256}}};
  copy.write_shard(kSecond, {shard.header, shard.data + std::string(256, 'x')});
  const std::string error = copy.error();
  EXPECT_SAYS(error, "tensor norm.weight: expected once, found in model-00002");
}

TEST(Checkpoint, RefusesWrongShapesAndDtypes) {
  const DamagedCheckpoint shape;
  shape.replace(kFirst, "layers.0.attn_norm.weight", "BF16", {127}, std::string(254, '\0'));
  const std::string error = shape.error();
  EXPECT_SAYS(error, kFirst);
  EXPECT_SAYS(error, "tensor layers.0.attn_norm.weight: expected BF16 [128], found BF16 [127]");

  const DamagedCheckpoint dtype;
  dtype.replace(kFirst, "layers.0.attn_norm.weight", "F32", {128}, std::string(512, '\0'));
  EXPECT_SAYS(dtype.error(), "expected BF16 [128], found F32 [128]");

  const DamagedCheckpoint fp4;
  const auto entry = fp4.read_shard(kFirst).header["layers.0.ffn.experts.0.w1.weight"];
  fp4.replace(kFirst, "layers.0.ffn.experts.0.w1.weight", "F8_E4M3", entry["shape"],
              std::string(96 * 64, '\0'));
  EXPECT_SAYS(fp4.error(), "expected I8 [96, 64], found F8_E4M3 [96, 64]");
}

TEST(Checkpoint, ListsMissingAndUnexpectedTensorsTogether) {
  const DamagedCheckpoint copy;
  copy.remove(DamagedCheckpoint::kIndex);
  auto shard = copy.read_shard(kFirst);
  nlohmann::ordered_json header;
  for (const auto& item : shard.header.items()) {
    const bool renamed = item.key() == "layers.0.attn.wq_a.scale";
    header[renamed ? "layers.0.attn.wq_a.scales" : item.key()] = item.value();
  }
  copy.write_shard(kFirst, {header, shard.data});
  const std::string error = copy.error();
  EXPECT_SAYS(error, "missing: 1 tensor (layers.0.attn.wq_a.scale)");
  EXPECT_SAYS(error, "unexpected: 1 tensor (layers.0.attn.wq_a.scales in model-00001");
}

TEST(Checkpoint, RefusesAConfigThatContradictsTheTensors) {
  const DamagedCheckpoint copy;
  copy.remove("inference_config.json");
  auto config = nlohmann::json::parse(copy.read("config.json"));
  config["text_config"]["n_routed_experts"] = 9;
  copy.write("config.json", config.dump());
  EXPECT_SAYS(copy.error(), "missing: 48 tensors (layers.0.ffn.experts.8.w1.scale, ");
  EXPECT_SAYS(copy.error(), "; unexpected: none");
  config["text_config"]["n_routed_experts"] = 7;
  copy.write("config.json", config.dump());
  EXPECT_SAYS(copy.error(), "unexpected: 48 tensors (layers.0.ffn.experts.7.w1.scale in ");
}

TEST(Checkpoint, RefusesAnEngramTableOneRowShort) {
  const DamagedCheckpoint copy;
  const auto name = "layers.1.engram.embed.scale";
  const std::string shard = copy.index()["weight_map"][name];
  copy.replace(shard, name, "F8_E8M0", {3143, 1}, std::string(3143, 100));
  EXPECT_SAYS(copy.error(),
              "tensor layers.1.engram.embed.scale: expected F8_E8M0 [3144, 1], found ");
}

TEST(Checkpoint, DecodesEveryScaleByteButNaN) {
  const auto name = "layers.0.attn.wq_a.scale";  // [2, 4] in tiny-a
  for (const char* dtype : {"F8_E8M0", "U8"}) {
    const DamagedCheckpoint copy;
    copy.replace(kFirst, name, dtype, {2, 4}, std::string("\x00\x01\x78\x7f\x80\xfe\x7f\x7f", 8));
    const auto opened = copy.open();
    ASSERT_TRUE(opened) << opened.error().message;
    const auto scales = opened->at(name).view<uint8_t>();
    const float expected[] = {0x1p-127f, 0x1p-126f, 0x1p-7f, 1.0f, 2.0f, 0x1p127f};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(e8m0_to_float(scales.data[i]), expected[i]) << i;

    copy.replace(kFirst, name, dtype, {2, 4}, std::string("\x7f\x7f\x7f\xff\x7f\x7f\x7f\x7f", 8));
    const std::string error = copy.error();
    EXPECT_SAYS(error, "layers.0.attn.wq_a.scale: expected E8M0 scales of 0 to 254, found 255");
    EXPECT_SAYS(error, kFirst);
  }
}

TEST(Checkpoint, RefusesNaNInTheScalesOfExpertsAndTables) {
  for (const char* name : {"layers.0.ffn.experts.0.w1.scale", "layers.1.engram.embed.scale"}) {
    const DamagedCheckpoint copy;
    const std::string shard_name = copy.index()["weight_map"][name];
    auto shard = copy.read_shard(shard_name);
    shard.data[shard.header[name]["data_offsets"][1].get<size_t>() - 1] = '\xff';
    copy.write_shard(shard_name, shard);
    EXPECT_SAYS(copy.error(), fmt::format("tensor {}: expected E8M0 scales of 0 to 254", name));
  }
}

TEST(Checkpoint, TakesFloatScalesAsTheyAre) {
  const auto name = "layers.0.attn.wq_a.scale";
  std::vector<float> scales = {1.5f, 0.3f, 0x1p-127f, 7.0f, 1, 1, 1, 1};
  const auto bytes = [&] { return std::string(reinterpret_cast<const char*>(scales.data()), 32); };
  const DamagedCheckpoint copy;
  copy.replace(kFirst, name, "F32", {2, 4}, bytes());
  const auto opened = copy.open();
  ASSERT_TRUE(opened) << opened.error().message;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(opened->at(name).view<float>().data[i], scales[i]);

  scales[5] = std::numeric_limits<float>::quiet_NaN();
  copy.replace(kFirst, name, "F32", {2, 4}, bytes());
  EXPECT_SAYS(copy.error(), "expected finite scales, found nan at element 5");
}

TEST(Checkpoint, RefusesAScaleABlockRowShort) {
  const DamagedCheckpoint copy;
  copy.replace(kFirst, "layers.0.attn.wq_a.scale", "F8_E8M0", {1, 4}, std::string(4, 120));
  EXPECT_SAYS(copy.error(),
              "layers.0.attn.wq_a.scale: expected F8_E8M0 [2, 4], found F8_E8M0 [1, 4]");
}

TEST(Checkpoint, RefusesAFolderWithoutShards) {
  const TestFolder empty;
  EXPECT_SAYS(Checkpoint::open(empty.path()).error().message, "expected config.json");
  const DamagedCheckpoint copy("tiny-b");
  copy.remove(kOnly);
  copy.remove(DamagedCheckpoint::kIndex);
  EXPECT_SAYS(copy.error(), "expected shards (*.safetensors), found none");
}

}  // namespace
}  // namespace cachalot
