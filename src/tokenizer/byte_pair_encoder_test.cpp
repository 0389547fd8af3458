#include "tokenizer/byte_pair_encoder.h"

#include <map>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

// The definition: join the leftmost pair of the lowest rank, one at a time.
std::vector<std::string> join_by_definition(const std::string& word,
                                            const std::map<std::string, int>& ranks) {
  std::vector<std::string> parts;
  for (const char c : word)
    append_utf8(byte_to_letter(static_cast<uint8_t>(c)), parts.emplace_back());
  while (true) {
    int best = -1, best_rank = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks.find(parts[i] + " " + parts[i + 1]);
      if (rank == ranks.end() || (best >= 0 && rank->second >= best_rank)) continue;
      best = static_cast<int>(i);
      best_rank = rank->second;
    }
    if (best < 0) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

TEST(BytePairEncoder, FollowsTheDefinitionForShortAndLongWords) {
  const std::string text = read_file(CACHALOT_SOURCE_DIR "/models/nano/tokenizer.json");
  const TokenizerFile file = TokenizerFile::parse(text).value();
  const Vocabulary vocabulary = Vocabulary::create(file).value();
  const BytePairEncoder encoder = BytePairEncoder::create(file, vocabulary).value();
  std::map<std::string, int> ranks;
  const auto document = nlohmann::json::parse(text);
  for (const auto& merge : document["model"]["merges"]) {
    ranks.emplace(merge.get<std::string>(), static_cast<int>(ranks.size()));
  }
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::string word;
    const size_t length = 1 + random() % (round % 2 ? 30 : 400);
    while (word.size() < length) {
      // Tokens of the vocabulary back to back: most pairs can be joined.
      word += vocabulary.bytes(static_cast<int32_t>(3 + random() % 1700));
    }
    Ids ids;
    encoder.encode(word, ids);
    std::vector<std::string> found;
    for (const int32_t id : ids) found.emplace_back(vocabulary.name(id));
    ASSERT_EQ(found, join_by_definition(word, ranks)) << word;
  }
}

}  // namespace
}  // namespace cachalot
