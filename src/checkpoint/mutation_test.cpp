// Thousands of damaged headers, indexes and configurations: each is read or refused with a message,
// and what is read keeps its promises.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {
namespace {

const std::filesystem::path kTinyB =
    std::filesystem::path(CACHALOT_SOURCE_DIR) / "tests/data/tiny-b";

// One to four small changes: a byte, a digit, a piece cut out, a piece repeated.
std::string mutated(std::string text, std::mt19937& random, size_t begin = 0) {
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = begin + below(text.size() - begin);
    const size_t length = 1 + below(std::min<size_t>(40, text.size() - at));
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text[at] = "0123456789-.e\"{}[],:"[below(20)];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        if (const size_t digit = text.find_first_of("0123456789", at); digit != text.npos) {
          text.replace(digit, 1, std::to_string(random()));
        }
    }
    if (text.size() <= begin) break;
  }
  return text;
}

TEST(Mutations, OfAShardAreReadOrRefused) {
  const std::string whole = *read_text_file(kTinyB / "model-00001-of-00001.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  // A few tensors' worth of header, so that most changes hit something that is parsed.
  const std::string header = whole.substr(8, whole.find("\"layers.0.ffn", 8) - 10) + "}";
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = mutated(header, random);
    uint64_t size = text.size();
    if (i % 50 == 0) size = random();
    const std::string file = std::string(reinterpret_cast<const char*>(&size), 8) + text +
                             whole.substr(8 + length, 300000);
    const auto read = read_safetensors_header(std::as_bytes(std::span(file)));
    if (!read) {
      ++refused;
      ASSERT_FALSE(read.error().message.empty());
      continue;
    }
    for (const SafetensorsEntry& entry : read->entries) {
      ASSERT_LE(read->data_start + entry.end, static_cast<int64_t>(file.size()));
      ASSERT_EQ(entry.end - entry.begin, entry.shape.elements() * size_of(entry.dtype));
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Mutations, OfAnIndexAreReadOrRefused) {
  const std::string whole = *read_text_file(kTinyB / "model.safetensors.index.json");
  const std::string index = whole.substr(0, whole.find_last_of(',', 2000)) + "}}";
  ASSERT_TRUE(parse_shard_index(index));
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const auto read = parse_shard_index(mutated(index, random));
    ASSERT_TRUE(read || !read.error().message.empty());
  }
}

TEST(Mutations, OfAConfigurationAreReadOrRefused) {
  for (const char* name : {"config.json", "inference_config.json"}) {
    const std::string text = *read_text_file(kTinyB / name);
    std::mt19937 random(3);
    int accepted = 0;
    for (int i = 0; i < 1500; ++i) {
      const auto config = parse_config(mutated(text, random), name);
      if (!config) {
        ASSERT_FALSE(config.error().message.empty());
        continue;
      }
      ++accepted;
      // Whatever is accepted can be listed, and written and read again.
      ASSERT_FALSE(tensor_table(*config).empty());
      ASSERT_TRUE(parse_config(flat_config_text(*config), "again"));
    }
    EXPECT_GT(accepted, 10) << "the mutations are too wild to test anything";
  }
}

}  // namespace
}  // namespace cachalot
