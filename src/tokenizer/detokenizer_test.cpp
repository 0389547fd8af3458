#include "tokenizer/detokenizer.h"

#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

std::string stream(const Ids& ids) {
  Detokenizer detokenizer(v41());
  std::string joined;
  for (const int32_t id : ids) {
    const std::string part = detokenizer.push(id);
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    joined += part;
  }
  return joined + detokenizer.finish();
}

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  const std::string text = "ok 🧮щ𠮷!";
  const Ids ids = v41().encode(text, EncodeMode::plain);
  Detokenizer detokenizer(v41());
  std::string joined;
  bool held = false;
  for (const int32_t id : ids) {
    const std::string part = detokenizer.push(id);
    held |= part.empty();
    joined += part;
    EXPECT_EQ(joined, text.substr(0, joined.size()));
  }
  EXPECT_TRUE(held);
  EXPECT_EQ(joined, text);
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ShowsACharacterCutAtTheEndOnce) {
  const Ids ids = v41().encode("ok 🧮", EncodeMode::plain);
  for (size_t length = 0; length <= ids.size(); ++length) {
    const Ids cut(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(length));
    const std::string text = decode(v41(), cut);
    EXPECT_EQ(stream(cut), text);
    const size_t at = text.find(kReplacementCharacter);
    if (at != std::string::npos) {
      EXPECT_EQ(at + kReplacementCharacter.size(), text.size());
    }
  }
}

TEST(Detokenizer, EqualsTheWholeDecodeForAnyIds) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    Ids ids(1 + random() % 12);
    // Half of them single bytes, so that ill-formed sequences of every kind occur.
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (random() % 2 ? 259 : 129280));
    EXPECT_EQ(stream(ids), decode(v41(), ids));
  }
}

TEST(Detokenizer, KeepsControlTokensUnlessAskedToSkipSpecialOnes) {
  const Ids ids = {0, 128803, 19923, 1};
  EXPECT_EQ(stream(ids), "<｜begin▁of▁sentence｜><｜User｜>Hello<｜end▁of▁sentence｜>");
  EXPECT_EQ(decode(v41(), ids, {.skip_special = true}), "<｜User｜>Hello");
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const auto replaced = [](std::string_view text) {
    std::string out;
    append_with_replacements(text, out);
    return out;
  };
  // Unicode 16, table 3-8 and the tables before it.
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "��������A");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "��������A");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "�����A��B");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "����A");
}

}  // namespace
}  // namespace cachalot
