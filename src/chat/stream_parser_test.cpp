#include "chat/stream_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "chat/json_value.h"
#include "chat/strict_parser.h"

namespace cachalot {
namespace {

const StreamParserOptions kThinking{AnswerStart::kReasoning, false, true};
const StreamParserOptions kChatting{AnswerStart::kContent, false, true};
const StreamParserOptions kNoTools{AnswerStart::kContent, false, false};

// Everything that a client could see, in one string.
struct Outcome {
  std::string joined;  // deltas, by what they belong to
  std::string message;
  bool operator==(const Outcome&) const = default;
};

std::string describe(const ParsedMessage& message) {
  std::string out =
      fmt::format("reasoning {:?}\ncontent {:?}\n{}\nfailure {:?}\n", message.reasoning_content,
                  message.content, message.finish_reason, message.failure);
  for (const ParsedCall& call : message.tool_calls) {
    out += fmt::format("{} {} {} {} {}\n", call.id, call.name, call.name_space, call.complete,
                       call.arguments);
  }
  for (const std::string& warning : message.warnings) out += warning + "\n";
  return out;
}

void join(std::vector<ParserEvent>& all, std::vector<ParserEvent> more) {
  for (ParserEvent& event : more) {
    const bool is_delta = event.kind == ParserEvent::kReasoning ||
                          event.kind == ParserEvent::kContent ||
                          event.kind == ParserEvent::kArguments;
    if (is_delta && !all.empty() && all.back().kind == event.kind &&
        all.back().call == event.call) {
      all.back().text += event.text;
    } else {
      all.push_back(std::move(event));
    }
  }
}

Outcome run(const StreamParserOptions& options, const std::vector<std::string_view>& parts,
            StopCause cause) {
  StreamParser parser(options);
  std::vector<ParserEvent> events;
  for (const std::string_view part : parts) join(events, parser.feed(part));
  join(events, parser.finish(cause));
  Outcome outcome{{}, describe(parser.message())};
  for (const ParserEvent& event : events) {
    outcome.joined += fmt::format("{} {} {:?} {} {} {}\n", static_cast<int>(event.kind), event.call,
                                  event.text, event.id, event.name, event.name_space);
  }
  return outcome;
}

ParsedMessage parse(const StreamParserOptions& options, std::string_view text,
                    StopCause cause = StopCause::kStop) {
  StreamParser parser(options);
  parser.feed(text);
  parser.finish(cause);
  return parser.message();
}

std::string parameter(std::string_view name, std::string_view kind, std::string_view value) {
  return fmt::format("<｜DSML｜ parameter name=\"{}\" string=\"{}\">{}</｜DSML｜ parameter>\n",
                     name, kind, value);
}

std::string invoke(std::string_view name, std::string_view parameters) {
  return fmt::format("<｜DSML｜ invoke name=\"{}\">\n{}</｜DSML｜ invoke>\n", name, parameters);
}

std::string calls(std::string_view invokes) {
  return fmt::format("\n\n<｜DSML｜ calls>\n{}</｜DSML｜ calls>", invokes);
}

std::vector<std::string> corpus() {
  const std::string two =
      calls(invoke("f", parameter("a", "true", "x<y\n\"é😀\"") + parameter("b", "false", "[1, 2]")) +
            invoke("ns::g", ""));
  return {
      "",
      "\n\nplain text < with </ things <thing> </thin>\n\n",
      "\nthought\n\n</think>\n\nanswer\n",
      "thought</think>answer" + two + "later text",
      "a\n\n\n" + two,
      "thought" + two,
      "x</think>y</think>z",
      "stray\n</think>\n\n" + calls(invoke("f", "") + "noise i p < in par </ " + invoke("g", "")),
      "</think>" + calls(invoke("f", parameter("a", "true", "1") + parameter("a", "false", "2"))),
      "</think><|DSML|invoke name=\"f\"><|DSML|parameter name=\"k\" string=\"true\">v</|DSML|"
      "parameter></|DSML|invoke>",
      "</think>" + calls("<｜DSML｜ invoke name=\"f\">\n<parameter name=\"a\" string=\"true\">1"),
      "</think>" + calls("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\">1"),
      "</think>" +
          calls(
              invoke("f", "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ paramter>")),
      "</think>text <｜DSML｜ is markup",
      "</think>text <｜DSM",
      "</think><｜User｜> is <｜end▁of▁sentence｜> text",
      "</think>" + calls("<｜DSML｜ invoke name=\"f\">\n" + parameter("a", "true", "x") +
                         "</｜DSML｜ calls>"),
      "</think>" + calls(invoke(std::string(2000, 'n'), "")),
  };
}

TEST(StreamParser, EverySplitGivesTheSame) {
  std::mt19937 random(1);
  for (const std::string& full : corpus()) {
    // Cut texts too: the corpus and some of its prefixes.
    for (const size_t cut : {full.size(), full.size() / 2, full.size() * 3 / 4}) {
      const std::string_view text = std::string_view(full).substr(0, cut);
      for (const auto& options : {kThinking, kChatting, kNoTools}) {
        for (const StopCause cause : {StopCause::kStop, StopCause::kLength}) {
          const Outcome whole = run(options, {text}, cause);
          std::vector<std::string_view> bytes;
          for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
          ASSERT_EQ(run(options, bytes, cause).joined, whole.joined) << text;
          ASSERT_EQ(run(options, bytes, cause).message, whole.message) << text;
          for (size_t at = 1; at<text.size(); at += text.size()> 500 ? 7 : 1) {
            ASSERT_EQ(run(options, {text.substr(0, at), text.substr(at)}, cause), whole) << text;
          }
          for (int round = 0; round < 10; ++round) {
            std::vector<std::string_view> parts;
            for (size_t at = 0; at < text.size(); at += parts.back().size()) {
              parts.push_back(text.substr(at, 1 + random() % 12));
            }
            ASSERT_EQ(run(options, parts, cause), whole) << text;
          }
        }
      }
    }
  }
}

TEST(StreamParser, SeparatesReasoningContentAndCalls) {
  const auto message =
      parse(kThinking, "\nWhy?\n\n</think>\n\nLet me look.\n" +
                           calls(invoke("maps::find", parameter("city", "true", "Paris") +
                                                          parameter("days", "false", "2")) +
                                 invoke("g", "")));
  EXPECT_EQ(message.reasoning_content, "Why?");
  EXPECT_EQ(message.content, "Let me look.");
  EXPECT_EQ(message.finish_reason, "tool_calls");
  ASSERT_EQ(message.tool_calls.size(), 2u);
  EXPECT_EQ(message.tool_calls[0].name, "find");
  EXPECT_EQ(message.tool_calls[0].name_space, "maps");
  EXPECT_EQ(message.tool_calls[0].arguments, R"({"city": "Paris", "days": 2})");
  EXPECT_EQ(message.tool_calls[1].arguments, "{}");
  EXPECT_TRUE(message.warnings.empty());
}

TEST(StreamParser, HoldsBackOnlyWhatMayBeAMarker) {
  StreamParser parser(kChatting);
  auto events = parser.feed("abc <｜DSM");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "abc ");
  events = parser.feed("X");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "<｜DSMX");
}

TEST(StreamParser, MarkupWithoutToolsIsContent) {
  const std::string text = "see" + calls(invoke("f", ""));
  EXPECT_EQ(parse(kNoTools, text).content, text);
  EXPECT_EQ(parse(kNoTools, text).finish_reason, "stop");
}

TEST(StreamParser, RawAnswersAreNotTouched) {
  const std::string text = "\n\n</think><｜DSML｜ calls>\n";
  EXPECT_EQ(parse({AnswerStart::kRaw, true, true}, text).content, text);
  EXPECT_EQ(parse({AnswerStart::kRaw, false, true}, text).content, text);
}

TEST(StreamParser, PrefixKeepsLeadingNewlines) {
  EXPECT_EQ(parse({AnswerStart::kContent, true, false}, "\n\nx").content, "\n\nx");
  const auto message = parse({AnswerStart::kReasoning, true, false}, "\nr</think>\nc");
  EXPECT_EQ(message.reasoning_content, "\nr");
  EXPECT_EQ(message.content, "c");
}

TEST(StreamParser, RequiredToolsStartInsideTheBlock) {
  const auto message = parse({AnswerStart::kToolCalls, false, true},
                             invoke("f", parameter("a", "false", "1")) + "</｜DSML｜ calls>");
  ASSERT_EQ(message.tool_calls.size(), 1u);
  EXPECT_EQ(message.tool_calls[0].arguments, R"({"a": 1})");
}

TEST(StreamParser, StringsStayStringsByteForByte) {
  for (const std::string value :
       {"007", "true", "null", "{\"a\":1}", "a<b && c>d", "line\nbreak", "C:\\t\\n", "é漢🧮\"",
        "  outer  ", "", "<｜DSML｜ parameter name=\"x\" string=\"true\">", "</think>",
        "\x01\x7f"}) {
    const auto message = parse(kChatting, calls(invoke("f", parameter("v", "true", value))));
    ASSERT_EQ(message.tool_calls.size(), 1u) << value;
    const Json arguments = *parse_json(message.tool_calls[0].arguments);
    EXPECT_EQ(*arguments.find("v")->string(), value);
  }
}

TEST(StreamParser, OtherValuesKeepTheirText) {
  for (const std::string value :
       {"007", "1e3", "-0", "12345678901234567890", "[1,]", "1.0", "null"}) {
    const auto message = parse(kChatting, calls(invoke("f", parameter("v", "false", value))));
    ASSERT_EQ(message.tool_calls.size(), 1u);
    EXPECT_EQ(message.tool_calls[0].arguments, "{\"v\": " + value + "}");
    EXPECT_EQ(message.warnings.empty(), parse_json(value).has_value()) << value;
  }
}

TEST(StreamParser, MalformedParametersFailTheParse) {
  for (const std::string body :
       {"<parameter name=\"a\" string=\"true\">1</parameter>\n",
        "<｜DSML｜ parameter name=\"a\">1</｜DSML｜ parameter>\n",
        "<｜DSML｜ parameter name=\"a\" string=\"maybe\">1</｜DSML｜ parameter>\n",
        "<｜DSML｜ parameter name=\"a\" string=\"true\">1</｜DSML｜ paramter>\n",
        "<｜DSML｜ parameter name=\"a\" string=\"true\">1</parameter>\n", "{\"a\": 1}"}) {
    const auto message = parse(kChatting, calls(invoke("ok", "") + invoke("mute", body)));
    EXPECT_FALSE(message.failure.empty()) << body;
    ASSERT_EQ(message.tool_calls.size(), 1u) << body;
    EXPECT_EQ(message.tool_calls[0].name, "ok");
    StreamParser parser(kChatting);
    for (const ParserEvent& event : parser.feed(calls(invoke("mute", body)))) {
      EXPECT_NE(event.kind, ParserEvent::kCallEnd);
      EXPECT_EQ(event.text.find("}"), std::string::npos) << body;
    }
    EXPECT_TRUE(parser.failed());
  }
  EXPECT_FALSE(parse(kChatting, calls(parameter("a", "true", "1"))).failure.empty());
  EXPECT_FALSE(
      parse(kChatting, "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n").failure.empty());
}

TEST(StreamParser, AParameterNamedArgumentsIsPassedOn) {
  const auto message =
      parse(kChatting, calls(invoke("mk", parameter("arguments", "false", R"({"path":"/t/a"})"))));
  EXPECT_EQ(message.tool_calls[0].arguments, R"({"arguments": {"path":"/t/a"}})");
}

TEST(StreamParser, OfRepeatedParametersTheLastCounts) {
  const auto message = parse(
      kChatting, calls(invoke("f", parameter("a", "true", "1") + parameter("b", "false", "2") +
                                       parameter("a", "false", "3"))));
  EXPECT_EQ(message.tool_calls[0].arguments, R"({"a": 3, "b": 2})");
  EXPECT_EQ(message.warnings.size(), 1u);
}

TEST(StreamParser, CutOutputLeavesArgumentsOpen) {
  const std::string head = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  auto message = parse(kChatting, head + "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DS",
                       StopCause::kLength);
  EXPECT_EQ(message.finish_reason, "length");
  ASSERT_EQ(message.tool_calls.size(), 1u);
  EXPECT_EQ(message.tool_calls[0].arguments, "{\"a\": \"x");
  EXPECT_FALSE(message.tool_calls[0].complete);
  EXPECT_EQ(parse(kChatting, head + "<｜DSML｜ param", StopCause::kLength).tool_calls[0].arguments,
            "");
  EXPECT_EQ(parse(kChatting, "a\n\n<｜", StopCause::kLength).content, "a\n\n<｜");
}

TEST(StreamParser, LongNewlineRunsTakeLinearTime) {
  StreamParser parser(kThinking);
  for (int i = 0; i < 300000; ++i) parser.feed("\n");
  for (int i = 0; i < 300000; ++i) parser.feed("x\n");
  parser.finish(StopCause::kStop);
  EXPECT_EQ(parser.message().reasoning_content.size(), 600000u);
}

TEST(StreamParser, MutatedAnswersNeverCrash) {
  std::mt19937 random(7);
  const std::string base =
      "r</think>c" + calls(invoke("f", parameter("a", "true", "x") + parameter("b", "false", "1")));
  for (int round = 0; round < 20000; ++round) {
    std::string text = base;
    for (int k = 0; k < 3; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, base.substr(random() % base.size(), random() % 30));
      }
    }
    const size_t at = random() % (text.size() + 1);
    const std::string_view view = text;
    ASSERT_EQ(run(kThinking, {view.substr(0, at), view.substr(at)}, StopCause::kStop),
              run(kThinking, {view}, StopCause::kStop));
    (void)parse_strict(text, true);
  }
}

// An assistant turn, rendered, parses back to itself: streaming and strictly.
TEST(StreamParser, UndoesTheEncoder) {
  const char* request = R"({"drop_thinking": false, "messages": [{"role": "system", "content": "",
      "tools": [{"function": {"name": "f"}}]}, {"role": "user", "content": "x"},
      {"role": "assistant", "reasoning_content": "Because\n<b>.", "content": "Well & <good>",
       "tool_calls": [{"function": {"name": "ns::f", "arguments":
           "{\"s\": \"é\\n\\\"q\\\" </x>\", \"n\": 12345678901234567890, \"f\": 1e-05, \"o\": {\"k\": [null, true]}}"}},
                      {"function": {"name": "g", "arguments": "{}"}}]}]})";
  const auto conversation = parse_conversation(*parse_json(request));
  ASSERT_TRUE(conversation) << conversation.error().message;
  const std::string text = render(*conversation)->text();
  const std::string completion = text.substr(text.rfind("<think>") + 7);
  const auto strict = parse_strict(completion, true);
  ASSERT_TRUE(strict) << strict.error().message;
  const std::string_view end = "<｜end▁of▁sentence｜>";
  const auto streamed = parse(kThinking, completion.substr(0, completion.size() - end.size()));
  for (const ParsedMessage& message : {*strict, streamed}) {
    EXPECT_EQ(message.reasoning_content, "Because\n<b>.");
    EXPECT_EQ(message.content, "Well & <good>");
    ASSERT_EQ(message.tool_calls.size(), 2u);
    EXPECT_EQ(message.tool_calls[0].name, "f");
    EXPECT_EQ(message.tool_calls[0].name_space, "ns");
    EXPECT_EQ(
        message.tool_calls[0].arguments,
        R"({"s": "é\n\"q\" </x>", "n": 12345678901234567890, "f": 1e-05, "o": {"k": [null, true]}})");
    EXPECT_EQ(message.tool_calls[1].arguments, "{}");
    EXPECT_EQ(message.finish_reason, "tool_calls");
  }
}

TEST(StrictParser, RefusesEveryDeviation) {
  const std::string end = "<｜end▁of▁sentence｜>";
  const std::string good = calls(invoke("f", parameter("a", "true", "1")));
  EXPECT_TRUE(parse_strict("x" + good + end, false));
  EXPECT_TRUE(parse_strict("x" + end, false));
  for (const std::string& bad :
       {std::string("x"), "x" + good, "x" + good + "y" + end, "x</think>y" + end, "<think>x" + end,
        "x" + end + end, "x｜DSML｜" + end,
        "x" + calls(invoke("f", parameter("a", "true", "1") + parameter("a", "true", "2"))) + end,
        "x" + calls(invoke("f", parameter("a", "maybe", "1"))) + end,
        "x" + calls(" " + invoke("f", "")) + end, "x\n\n<｜DSML｜ calls>\n" + end}) {
    EXPECT_FALSE(parse_strict(bad, false)) << bad;
  }
  EXPECT_FALSE(parse_strict("no end of thought" + end, true));
  EXPECT_FALSE(parse_strict("thought" + good + "</think>" + end, true));
}

}  // namespace
}  // namespace cachalot
