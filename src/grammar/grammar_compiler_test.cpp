#include "grammar/grammar_compiler.h"

#include <gtest/gtest.h>

#include <thread>

#include "grammar/walk_test.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

using enum Constraint::Kind;

TEST(Gbnf, ReadsLlamaCppsNotation) {
  const Constraint constraint = written(kGrammar, R"(
# an answer
root   ::= answer ("," " "? answer){0,2} end   # with a comment
answer ::= "yes" | "no" |
           [A-C\x64-f]+
end    ::= [.!?]? ( "\n" | "\u00e9" . )*
)");
  for (const char* text : {"yes", "no,yes", "ABde, no, yes!", "A\n\né漢", "f?éé"})
    EXPECT_TRUE(accepts(constraint, text)) << text;
  for (const char* text : {"", "maybe", "yes,no,yes,no", "yes,", "g", "A\xC3"})
    EXPECT_FALSE(accepts(constraint, text)) << text;
}

TEST(Gbnf, RepeatsWhatStandsInFront) {
  EXPECT_TRUE(accepts(written(kGrammar, R"(root ::= "ab"{2} [^a-z]{1,} "c"*)"), "ababX9ccc"));
  EXPECT_FALSE(accepts(written(kGrammar, R"(root ::= "ab"{2})"), "abb"));
  EXPECT_TRUE(accepts(written(kGrammar, "root ::= (\"a\" | \"b\"){3}\n"), "aba"));
  EXPECT_TRUE(accepts(written(kGrammar, R"(root ::= ("a"*)* "b")"), "aab"));
  EXPECT_TRUE(accepts(written(kGrammar,
                              "root ::= expr\nexpr ::= term (\"+\" term)*\n"
                              "term ::= [0-9]+ | \"(\" expr \")\""),
                      "1+(2+(33+4))+5"));
}

TEST(Gbnf, NamesLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"root = \"a\"", "line 1, column 6: expected '::='"},
      {"root ::= \"a\" other\n", "line 1, column 14: 'other' is used"},
      {"roots ::= \"a\"\n", "no rule 'root'"},
      {"root ::= \"a\n", "the text ends in a literal"},
      {"root ::= [a\n", "the text ends"},
      {"root ::= \"\\q\"", "line 1, column 12: an unknown escape"},
      {"root ::= (\"a\"\n", "expected ')'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a second rule"},
      {"root ::= [z-a]", "reversed"},
      {"root ::= \"a\"{3,2}", "reversed"},
      {"root ::= \"a\"{999999999}", "repetitions"},
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= a\na ::= b* a\nb ::= \"x\"?\n", "nothing can satisfy it"},
      {"root ::= \"(\" root \")\"", "nothing can satisfy it"},
      {"root ::= \"a\" <x>", "expected the end of the line"},
      {"root ::= \"é\" )", "line 1, column 14"},
      {"", "no rule 'root'"},
      {"root ::= \"\xff\"", "UTF-8"},
  };
  for (const auto& [grammar, message] : cases)
    EXPECT_NE(error_of(written(kGrammar, grammar)).find(message), std::string::npos)
        << grammar << ": " << error_of(written(kGrammar, grammar));
}

TEST(Regex, DescribesTheWholeText) {
  const std::tuple<const char*, std::vector<const char*>, std::vector<const char*>> cases[] = {
      {R"(\d{3}-\d{4})", {"555-1234"}, {"555-123", "a555-1234", "555-12345"}},
      {R"(^(foo|ba[rz])+?$)", {"foo", "barbaz"}, {"", "ba"}},
      {R"([^\s,]+(?:,\w*)*)", {"a", "é!,b_,,c"}, {" a", ",b"}},
      {R"(a.c|\x41\u{1F600}\/)", {"abc", "a漢c", "A😀/"}, {"a\nc", "ac"}},
      {R"([\w\-.]{2,}(?<n>x)?)", {"a-", "a.x"}, {"a", "a b"}},
      {R"([]|a*)", {"", "aaa"}, {"b"}},
      {R"(a{,2}|b{x)", {"a{,2}", "b{x"}, {"a", "aa"}},
  };
  for (const auto& [regex, yes, no] : cases) {
    for (const char* text : yes)
      EXPECT_TRUE(accepts(written(kRegex, regex), text)) << regex << text;
    for (const char* text : no)
      EXPECT_FALSE(accepts(written(kRegex, regex), text)) << regex << text;
  }
}

TEST(Regex, NamesTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"a(b", "column 4: a group without ')'"},
      {"a)", "column 2"},
      {"[a", "a class without ']'"},
      {"*a", "column 1: a repetition of nothing"},
      {"a**", "a repetition of a repetition"},
      {R"(\1)", "backreferences"},
      {R"(\bx)", "word boundaries"},
      {"(?=a)", "lookahead"},
      {"(?<!a)", "lookbehind"},
      {"a{3,1}", "reversed"},
      {"[z-a]", "reversed"},
      {R"(\p{L})", "\\p"},
      {R"(\u12)", "hexadecimal"},
      {R"(a\)", "at the end"},
      {"a^b", "no text matches"},
      {"(a{1000}){1000}", "too complex"},
      {"[ab]*a[ab]{40}", "states"},
  };
  for (const auto& [regex, message] : cases)
    EXPECT_NE(error_of(written(kRegex, regex)).find(message), std::string::npos)
        << regex << ": " << error_of(written(kRegex, regex));
}

TEST(Choice, IsOneOfTheTexts) {
  Constraint constraint;
  constraint.kind = kChoice;
  constraint.choices = {"yes", "yesterday", "漢字"};
  for (const std::string& text : constraint.choices) EXPECT_TRUE(accepts(constraint, text));
  for (const char* text : {"", "ye", "yester", "漢", "yesyes"})
    EXPECT_FALSE(accepts(constraint, text)) << text;
  constraint.choices.clear();
  EXPECT_NE(error_of(constraint).find("at least one"), std::string::npos);
}

TEST(GrammarCompiler, LeavesAloneWhatIsNotConstrained) {
  const auto grammar = nano_compiler().compile({});
  ASSERT_TRUE(grammar.has_value());
  EXPECT_EQ(*grammar, nullptr);
  EXPECT_EQ(make_token_mask(*grammar, AnswerStart::kReasoning, {}), nullptr);
}

TEST(GrammarCompiler, KeepsWhatItCompiled) {
  const Constraint constraint = json_schema(R"({"type":"integer","minimum":3})");
  EXPECT_EQ(*nano_compiler().compile(constraint), *nano_compiler().compile(constraint));
  EXPECT_NE(*nano_compiler().compile(constraint),
            *nano_compiler().compile(json_schema(R"({"type":"integer","minimum":4})")));
}

TEST(GrammarMask, BeginsBehindTheReasoning) {
  const auto grammar = *nano_compiler().compile(json_schema(R"({"type":"integer"})"));
  for (const char* text : {"</think>5", "let me </thin think { }\n</think>17", "a < b</think>-2"}) {
    const Reading reading = read(grammar, text, AnswerStart::kReasoning);
    EXPECT_TRUE(reading.complete && reading.bytes == std::string_view(text).size()) << text;
  }
  for (const char* text : {"", "5", "</think>", "</think>a", "</think>5</think>"})
    EXPECT_FALSE(read(grammar, text, AnswerStart::kReasoning).complete &&
                 read(grammar, text, AnswerStart::kReasoning).bytes ==
                     std::string_view(text).size())
        << text;
}

// </think> spelled in letters would end the reasoning for the parser, but not for the mask.
TEST(GrammarMask, KeepsSpelledMarkersOutOfTheReasoning) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const auto grammar = *nano_compiler().compile(json_schema("{}"));
  const auto mask = make_token_mask(grammar, AnswerStart::kReasoning, {});
  for (const char* letter : {"<", "/", "t", "h", "i", "n", "k"}) {
    ASSERT_TRUE(is_set(mask->allowed({}), *tokenizer.id_of(letter)));
    mask->accept(*tokenizer.id_of(letter));
  }
  EXPECT_FALSE(is_set(mask->allowed({}), *tokenizer.id_of(">")));
  EXPECT_TRUE(is_set(mask->allowed({}), *tokenizer.id_of("</think>")));
}

TEST(GrammarMask, LetsNoControlTokenIntoAString) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const auto grammar = *nano_compiler().compile(json_schema(R"({"type":"string"})"));
  const int32_t end = *tokenizer.eos_id();
  const auto mask = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
  mask->accept(*tokenizer.id_of("\""));
  const auto allowed = mask->allowed({});
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    EXPECT_FALSE(tokenizer.is_added(id) && is_set(allowed, id)) << tokenizer.token_name(id);
}

TEST(GrammarMask, SupposesDraftsWithoutAcceptingThem) {
  const Tokenizer& tokenizer = nano_tokenizer();
  const auto grammar =
      *nano_compiler().compile(json_schema(R"({"type":"array","items":{"type":"integer"}})"));
  const int32_t end = *tokenizer.eos_id();
  const auto mask = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    const auto walked = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
    const Walk walk = random_walk(tokenizer, *walked, random);
    const auto stepped = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
    for (size_t n = 0; n <= walk.tokens.size(); ++n) {
      const auto supposed = mask->allowed(std::span(walk.tokens).first(n));
      ASSERT_TRUE(std::ranges::equal(supposed, stepped->allowed({}))) << n;
      if (n < walk.tokens.size()) stepped->accept(walk.tokens[n]);
    }
  }
  const int32_t wrong[] = {*tokenizer.id_of("}")}, over[] = {end};
  EXPECT_TRUE(mask->allowed(wrong).empty());
  EXPECT_TRUE(mask->allowed(over).empty());
  EXPECT_FALSE(mask->allowed({}).empty());
}

// Many answers on many threads, while the states they share are thrown away again and again.
TEST(GrammarMask, SharesStatesBetweenThreads) {
  const Constraint constraint =
      json_schema(R"({"type":"array","items":{"type":"string","maxLength":40}})");
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto grammar = *nano_compiler().compile(constraint);
      std::mt19937 random(5);
      const int32_t end = *nano_tokenizer().eos_id();
      for (int i = 0; i < 20; ++i) {
        const auto mask = make_token_mask(grammar, AnswerStart::kContent, {&end, 1});
        texts[t] += random_walk(nano_tokenizer(), *mask, random).text;
        if (i % 5 == 0) grammar->space_after(grammar->space());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(GrammarMask, BoundsItsMemory) {
  // Every text is a state of its own.
  std::string grammar = "root ::= ";
  for (char c = 'a'; c <= 'z'; ++c)
    grammar += fmt::format("{}\"{}\" root? \"{}\"", c == 'a' ? "" : " | ", c,
                           static_cast<char>(c - 'a' + 'A'));
  const auto compiled = *nano_compiler().compile(written(kGrammar, grammar));
  std::mt19937 random(1);
  const int32_t end = *nano_tokenizer().eos_id();
  const auto mask = make_token_mask(compiled, AnswerStart::kContent, {&end, 1});
  const auto first = compiled->space();
  for (int i = 0; i < 100; ++i) {
    random_walk(nano_tokenizer(), *mask, random, 1, 1);
    EXPECT_LT(compiled->space()->states.bytes(), size_t{40} << 20);
  }
  EXPECT_NE(compiled->space(), first);
}

}  // namespace
}  // namespace cachalot
