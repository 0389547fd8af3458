#include "tokenizer/tokenizer.h"

#include <thread>

#include "tokenizer/detokenizer.h"
#include "tokenizer/fixture_test.h"

namespace cachalot {
namespace {

constexpr EncodeMode kPlain = EncodeMode::plain, kCompatible = EncodeMode::compatible;

TEST(Tokenizer, EncodesTheGoldenTexts) {
  std::istringstream lines(read_file(data_path("tokenizer.jsonl")));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto golden = nlohmann::json::parse(line);
    const auto text = golden["text"].get<std::string>();
    const auto ids = golden["ids"].get<Ids>();
    EXPECT_EQ(v41().encode(text, kCompatible), ids) << text;
    EXPECT_EQ(decode(v41(), ids), text);
  }
  EXPECT_EQ(count, 198);
}

TEST(Tokenizer, EncodesTheSpecifiedVectors) {
  const std::vector<std::pair<std::string, Ids>> vectors = {
      {"Hello, world!", {19923, 14, 2058, 3}},
      {"12345 6789", {6895, 1883, 223, 27183, 27}},
      {"你好，世界", {30594, 303, 3427}},
      {"def f(x):\n    return x**2\n", {3465, 285, 4042, 3395, 361, 1354, 1527, 666, 20, 201}},
      {"it's I'll  two  spaces\n\n\n\ttab",
       {279, 734, 342, 5922, 223, 1234, 223, 13564, 6328, 200, 14278}},
      {"😀🏳️‍🌈 naïve café",
       {28927, 225, 40965, 114, 10759, 46088, 110659, 112752, 57664}},
      {"Hello! 毕老师！1 + 1 = 2",
       {19923, 3, 223, 5464, 5008, 1175, 19, 940, 223, 19, 438, 223, 20}},
      {"<｜DSML｜ calls>", {30, 128825, 10699, 32}},
      {"</｜DSML｜ parameter>", {1718, 128825, 10767, 32}},
      {"\n\n<｜DSML｜ calls>\n", {271, 30, 128825, 10699, 1018}},
      {"<tool_result>", {30, 72461, 46148, 32}},
      {"<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>",
       {0, 128803, 19923, 128804, 128822}},
      {"<｜fim▁begin｜>def fib(a):<｜fim▁hole｜>    return fib(a-1) + fib(a-2)<｜fim▁end｜>",
       {128801, 3465, 10150, 6036, 2605,  128800, 361, 1354, 10150, 6036,
        15,     19,   11,    940,  10150, 6036,   15,  20,   11,    128802}},
  };
  for (const auto& [text, ids] : vectors) EXPECT_EQ(v41().encode(text, kCompatible), ids) << text;
}

// Ids by Hugging Face tokenizers 0.23.3.
TEST(Tokenizer, GroupsNumbersOfEveryKindInThreesFromTheLeft) {
  const auto pieces_of = [](std::string_view text) {
    std::vector<std::string> pieces;
    for (const int32_t id : v41().encode(text, kPlain)) pieces.emplace_back(v41().token_bytes(id));
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("rev7043x"), (Pieces{"rev", "704", "3", "x"}));
  EXPECT_EQ(pieces_of("12"), (Pieces{"12"}));
  EXPECT_EQ(pieces_of("123"), (Pieces{"123"}));
  EXPECT_EQ(pieces_of("1234"), (Pieces{"123", "4"}));
  EXPECT_EQ(pieces_of("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(pieces_of("3.14159"), (Pieces{"3", ".", "141", "59"}));
  EXPECT_EQ(v41().encode("٣٤٥٦", kPlain), (Ids{127056, 152, 100, 152, 101, 152, 102}));
  EXPECT_EQ(v41().encode("Ⅷ½", kPlain), (Ids{23603, 103, 23951}));
}

TEST(Tokenizer, KeepsControlSpellingsOfPlainTextAsText) {
  const std::string text = "<｜User｜>hi<｜end▁of▁sentence｜></think><|EOT|>";
  for (const int32_t id : v41().encode(text, kPlain)) EXPECT_FALSE(v41().is_added(id)) << id;
  EXPECT_EQ(decode(v41(), v41().encode(text, kPlain)), text);
  EXPECT_EQ(v41().encode(text, kCompatible), (Ids{128803, 6366, 1, 128822, 128805}));
}

TEST(Tokenizer, JoinsPiecesBetweenControlTokens) {
  const auto encode = [](std::vector<Piece> pieces) { return v41().encode_pieces(pieces); };
  const Ids whole = v41().encode("<｜User｜>Hello, world!\n\n<｜DSML｜ calls>\n", kCompatible);
  EXPECT_EQ(encode({{"<｜User｜>", true},
                    {"Hel", false},
                    {"lo, wor", false},
                    {"ld!\n", false},
                    {"\n<｜DSML｜ calls>\n", true}}),
            whole);
  // A character cut in two is whole again.
  EXPECT_EQ(encode({{"\xE4\xBD", false}, {"\xA0好", false}}), v41().encode("你好", kPlain));
  // Nothing that trusted text only completes is a control token.
  for (const int32_t id : encode({{"<｜User｜", false}, {">", true}})) {
    EXPECT_FALSE(v41().is_added(id));
  }
  EXPECT_EQ(encode({{"</think>", false}, {"</think>", true}}).back(), 128822);
  EXPECT_NE(encode({{"</think>", false}, {"</think>", true}}).front(), 128822);
  EXPECT_TRUE(encode({}).empty());
}

TEST(Tokenizer, GivesBackAnyBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string text = random_text(random, 30);
    for (int i = 0; i < 4; ++i) text[random() % text.size()] = static_cast<char>(random());
    std::string bytes;
    for (const int32_t id : v41().encode(text, kPlain)) bytes += v41().token_bytes(id);
    EXPECT_EQ(bytes, text);
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  EXPECT_EQ(v41().vocab_size(), 129280);
  EXPECT_EQ(v41().id_of("<｜System｜>"), 128799);
  EXPECT_EQ(v41().id_of("Ġthe"), 270);
  EXPECT_EQ(v41().id_of("no such token"), std::nullopt);
  EXPECT_EQ(v41().token_bytes(270), " the");
  EXPECT_EQ(v41().token_name(270), "Ġthe");
  EXPECT_TRUE(v41().is_special(1));
  EXPECT_TRUE(v41().is_added(128803));
  EXPECT_FALSE(v41().is_special(128803));
  EXPECT_FALSE(v41().is_added(270));
  EXPECT_EQ(v41().bos_id(), 0);
  EXPECT_EQ(v41().eos_id(), 1);
  EXPECT_EQ(v41().pad_id(), 1);
}

TEST(Tokenizer, GivesTheSameIdsInParallelAndInLongTexts) {
  std::mt19937 random(3);
  std::string text;
  Ids line_by_line;  // short texts use no cache
  for (int i = 0; i < 400; ++i) {
    const std::string line = random_text(random, 20).append("<think>");
    text += line;
    const Ids ids = v41().encode(line, kCompatible);
    line_by_line.insert(line_by_line.end(), ids.begin(), ids.end());
  }
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = v41().encode(text, kCompatible);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, line_by_line);
}

TEST(Tokenizer, EncodesAMegabyteOfOneWord) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(decode(v41(), v41().encode(text, kPlain)), text);
}

}  // namespace
}  // namespace cachalot
