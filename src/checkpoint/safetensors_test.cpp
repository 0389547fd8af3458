#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {
namespace {

std::string file_of(std::string header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + header + std::string(data_bytes, '\0');
}

std::string error_of(const std::string& file) {
  const auto header = read_safetensors_header(std::as_bytes(std::span(file)));
  return header ? "read" : header.error().message;
}

TEST(Safetensors, ReadsEntriesInTheOrderOfTheirData) {
  const std::string file = file_of(
      R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},"__metadata__":{"by":"test"},)"
      R"("a":{"shape":[1],"data_offsets":[0,2],"dtype":"BF16"},)"
      R"("none":{"dtype":"U8","shape":[0,7],"data_offsets":[2,2]}}  )",
      10);
  const auto header = read_safetensors_header(std::as_bytes(std::span(file)));
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[1].name, "none");
  EXPECT_EQ(header->entries[2].name, "b");
  EXPECT_EQ(header->entries[2].shape, (Shape{2, 1}));
  EXPECT_EQ(header->entries[2].dtype, DType::f32);
  EXPECT_EQ(header->data_start, static_cast<int64_t>(file.size()) - 10);
}

TEST(Safetensors, RefusesWhatIsNotOne) {
  struct Case {
    const char* header;
    size_t data;
    const char* says;
  };
  const Case cases[] = {
      {"", 0, "not valid JSON"},
      {"[]", 0, "expected no list"},
      {"{} {}", 0, "not valid JSON"},
      {"{\"a\":1}", 0, "expected no number"},
      {"{\"a\":null}", 0, "tensor a: expected no null"},
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "known dtype, found F64"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "two data_offsets"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "expected dtype, shape"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1, "found more"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "no text"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "found 1.5"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "found -1"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[0,1]}})", 1, "at most 4"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "no list"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1, "2^63"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "2^63"},
      {R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,5]}})", 5, "expected 6 bytes"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[4,1]}})", 5, "expected 3 bytes"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "first tensor hit: a"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensors overlap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4, "tensor a: named twice"},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(file_of(c.header, c.data));
    EXPECT_NE(error.find(c.says), std::string::npos) << c.header << ": " << error;
  }
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  for (uint64_t length : {uint64_t{3}, uint64_t{99'999'999}, ~uint64_t{0}}) {
    std::string file(reinterpret_cast<const char*>(&length), 8);
    EXPECT_NE(error_of(file + "{}"), "read") << length;
  }
  EXPECT_NE(error_of(file_of(std::string(1'000'000, '['), 0)), "read");
}

TEST(TensorNames, TurnIntoTheReleasedOnes) {
  const std::pair<const char*, const char*> cases[] = {
      {"embed.weight", "embed.weight"},
      {"model.norm.weight", "norm.weight"},
      {"model.layers.3.self_attn.wq_a.weight_scale_inv", "layers.3.attn.wq_a.scale"},
      {"layers.3.mlp.gate.e_score_correction_bias", "layers.3.ffn.gate.bias"},
      {"vision.blocks.0.mlp.w1.weight", "vision.blocks.0.mlp.w1.weight"},
      {"model.vision.blocks.0.self_attn.wo.bias", "vision.blocks.0.attn.wo.bias"},
      {"mtp.2.markov_head.embed.weight", "mtp.2.markov_head.embed.weight"},
  };
  for (const auto& [name, canonical] : cases) EXPECT_EQ(canonical_name(name), canonical);
  EXPECT_EQ(canonical_name("mtp.0.embed.weight"), std::nullopt);
  EXPECT_EQ(canonical_name("model.mtp.2.head.weight"), std::nullopt);
}

// Headers and index of the full release, made up from its tensor table.
TEST(Safetensors, ReadsAReleasesHeadersAndIndexWellBelowASecond) {
  const auto config =
      load_config(std::filesystem::path(CACHALOT_SOURCE_DIR) / "tests/data/released");
  ASSERT_TRUE(config);
  const auto table = tensor_table(*config);
  std::string index = "{\"weight_map\": {", header = "{";
  for (const TensorSpec& spec : table) {
    const char* comma = &spec == &table.back() ? "" : ",\n";
    index += fmt::format("\"{}\": \"model-{:05}-of-00048.safetensors\"{}", spec.name,
                         spec.shard + 1, comma);
    // Empty tensors: the time goes into names and numbers, not into data.
    header += fmt::format(R"("{}":{{"dtype":"{}","shape":[0,{}],"data_offsets":[0,0]}}{})",
                          spec.name, name_of(spec.dtype), spec.bytes(), comma);
  }
  index += "}}";
  const std::string file = file_of(header + "}", 0);
  const std::clock_t start = std::clock();
  const auto parsed_index = parse_shard_index(index);
  const auto parsed_header = read_safetensors_header(std::as_bytes(std::span(file)));
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(parsed_index) << parsed_index.error().message;
  ASSERT_TRUE(parsed_header) << parsed_header.error().message;
  EXPECT_EQ(parsed_index->locations.size(), table.size());
  EXPECT_EQ(parsed_header->entries.size(), table.size());
  RecordProperty("seconds", fmt::format("{:.3f}", seconds));
#ifdef NDEBUG  // an unoptimised build under sanitizers takes ten times as long
  EXPECT_LT(seconds, 1.0);
#endif
}

}  // namespace
}  // namespace cachalot
