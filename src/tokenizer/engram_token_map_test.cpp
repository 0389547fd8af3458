#include "tokenizer/engram_token_map.h"

#include <cstring>

#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

TEST(EngramTokenMap, EqualsTheGoldenForEveryId) {
  const std::string golden = read_file(data_path("engram_token_map_v41.i32le"));
  Ids expected(golden.size() / 4);
  std::memcpy(expected.data(), golden.data(), golden.size());
  const auto map = engram_token_map(v41());
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->class_of, expected);
  EXPECT_EQ(map->class_count, 99092);
}

TEST(EngramTokenMap, EqualsTheMapsOfTheSmallModels) {
  for (const std::string& folder : {std::string(CACHALOT_SOURCE_DIR "/models/nano"),
                                    data_path("tiny-a"), data_path("tiny-b")}) {
    const auto tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto map = engram_token_map(*tokenizer);
    ASSERT_TRUE(map) << map.error().message;
    const auto expected = nlohmann::json::parse(read_file(folder + "/engram_token_map.json"));
    EXPECT_EQ(map->class_of, expected.get<Ids>()) << folder;
  }
}

}  // namespace
}  // namespace cachalot
