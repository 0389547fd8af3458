#include "server/messages_writer.h"

#include <gtest/gtest.h>

#include "server/answer_events_for_test.h"
#include "server/messages_request.h"

namespace cachalot {
namespace {

MessagesWriter new_writer() { return MessagesWriter("msg_1", "nano", "req_1"); }

const Json& content_of(const MessagesWriter& writer) { return *writer.whole().find("content"); }

// What a client puts together from the events, as Anthropic's documentation says.
Json assembled(const std::vector<ServerEvent>& events) {
  Json message;
  Json::Array content;
  std::string arguments;
  for (const ServerEvent& event : events) {
    if (event.name == "message_start") message = *event.data.find("message");
    if (event.name == "content_block_start") {
      content.push_back(*event.data.find("content_block"));
      arguments.clear();
    }
    if (event.name == "content_block_delta") {
      for (const char* member : {"thinking", "text", "signature"}) {
        const Json* more = event.data.find("delta")->find(member);
        if (!more) continue;
        content.back().set(member, Json(*content.back().find(member)->string() + *more->string()));
      }
      if (const Json* more = event.data.find("delta")->find("partial_json"))
        arguments += *more->string();
    }
    if (event.name == "content_block_stop" && !arguments.empty())
      content.back().set("input", parse_json(arguments).value());
    if (event.name == "message_delta") {
      for (const Json::Member& member : *event.data.find("delta")->object())
        message.set(member.key, member.value);
      message.set("usage", *event.data.find("usage"));
    }
  }
  message.set("content", Json(content));
  return message;
}

TEST(MessagesWriter, WritesTheEventsOfAnthropicsProtocol) {
  MessagesWriter writer = new_writer();
  const std::vector<std::string> expected = {
      R"(message_start {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "nano", "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 24, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 16, "output_tokens": 0}}})",
      R"(content_block_start {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I look "}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "it up."}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "msg_1"}})",
      R"(content_block_stop {"type": "content_block_stop", "index": 0})",
      R"(content_block_start {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "One moment."}})",
      R"(content_block_stop {"type": "content_block_stop", "index": 1})",
      R"(content_block_start {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "call_7_0", "name": "get_weather", "input": {}}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"city\": \"Par"}})",
      R"(content_block_delta {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "is\"}"}})",
      R"(content_block_stop {"type": "content_block_stop", "index": 2})",
      R"(message_delta {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"input_tokens": 24, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 16, "output_tokens": 12, "output_tokens_details": {"thinking_tokens": 5}}})",
      R"(message_stop {"type": "message_stop"})",
  };
  EXPECT_EQ(lines_of(take_all(writer, answer_with_call())), expected);
}

TEST(MessagesWriter, GivesTheSameMessageWholeAndStreamed) {
  MessagesWriter writer = new_writer();
  const auto events = take_all(writer, answer_with_call());
  EXPECT_EQ(assembled(events).dump(), writer.whole().dump());
  EXPECT_EQ(content_of(writer).dump(),
            R"([{"type": "thinking", "thinking": "I look it up.", "signature": "msg_1"}, )"
            R"({"type": "text", "text": "One moment."}, )"
            R"({"type": "tool_use", "id": "call_7_0", "name": "get_weather", )"
            R"("input": {"city": "Paris"}}])");
}

TEST(MessagesWriter, GivesWhatARequestTakesBack) {
  MessagesWriter writer = new_writer();
  take_all(writer, answer_with_call());
  const Json result = parse_json(R"({"role": "user", "content": [{"type": "tool_result",
      "tool_use_id": "call_7_0", "content": "sun"}]})")
                          .value();
  const Json question = parse_json(R"({"role": "user", "content": "Weather?"})").value();
  const Json answer(Json::Object{{"role", Json("assistant")}, {"content", content_of(writer)}});
  const Json body(Json::Object{{"max_tokens", Json::integer(int64_t{9})},
                               {"messages", Json(Json::Array{question, answer, result})}});
  const auto request = parse_messages_request(body, {}, {.model_names = {"nano"}});
  ASSERT_TRUE(request) << request.error().message;
  const Message& turn = std::get<Chat>(request->chat.conversation.input).messages[1];
  EXPECT_EQ(turn.reasoning_content, "I look it up.");
  EXPECT_EQ(std::get<TextBlock>(turn.blocks.at(0)).text, "One moment.");
  EXPECT_EQ(turn.tool_calls.at(0).arguments.dump(), R"({"city": "Paris"})");
}

TEST(MessagesWriter, NamesTheReasonOfTheEnd) {
  const auto reason = [](const AnswerEvent& end) {
    MessagesWriter writer = new_writer();
    take_all(writer, {prefill_event(40, 16), delta_event(ParserEvent::kContent, "a"), end});
    return writer.whole().find("stop_reason")->dump() + " " +
           writer.whole().find("stop_sequence")->dump();
  };
  EXPECT_EQ(reason(finished_event("stop")), R"("end_turn" null)");
  EXPECT_EQ(reason(finished_event("length")), R"("max_tokens" null)");
  EXPECT_EQ(reason(finished_event("deadline")), R"("max_tokens" null)");
  AnswerEvent stopped = finished_event("stop");
  stopped.stop_sequence = "END";
  EXPECT_EQ(reason(stopped), R"("stop_sequence" "END")");
}

TEST(MessagesWriter, GivesWhatIsCompleteOfACallThatWasCutOff) {
  MessagesWriter writer = new_writer();
  const auto events =
      take_all(writer, {prefill_event(40, 0), call_event("call_0", "f"),
                        delta_event(ParserEvent::kArguments, R"({"a": 1, "b": "two\)"),
                        finished_event("length")});
  EXPECT_EQ(content_of(writer).array()->at(0).find("input")->dump(), R"({"a": 1, "b": "two"})");
  EXPECT_EQ(events.at(events.size() - 3).name, "content_block_stop");
}

TEST(MessagesWriter, ReportsACallThatCannotBeRead) {
  MessagesWriter writer = new_writer();
  AnswerEvent end = finished_event("stop");
  end.message.failure = "a misspelled closing tag";
  const auto events = take_all(writer, {prefill_event(40, 0), call_event("call_0", "f"), end});
  ASSERT_TRUE(writer.error());
  EXPECT_EQ(writer.error()->status, 500);
  EXPECT_EQ(lines_of(events).back(),
            R"(error {"type": "error", "error": {"type": "api_error", "message": )"
            R"("the model wrote a call that cannot be read: a misspelled closing tag"}, )"
            R"("request_id": "req_1"})");
}

TEST(MessagesWriter, ReportsAFailureInTheMiddle) {
  MessagesWriter writer = new_writer();
  const auto events =
      take_all(writer, {prefill_event(40, 0), failed_event(ApiError(503, "stopping"))});
  EXPECT_EQ(lines_of(events).back(),
            R"(error {"type": "error", "error": {"type": "overloaded_error", "message": )"
            R"("stopping"}, "request_id": "req_1"})");
}

TEST(MessagesWriter, PingsOnlyAfterTheStart) {
  MessagesWriter writer = new_writer();
  EXPECT_TRUE(writer.waiting().empty());
  writer.take(prefill_event(40, 0));
  EXPECT_EQ(lines_of(writer.waiting()), std::vector<std::string>{R"(ping {"type": "ping"})"});
}

TEST(MessagesWriter, WritesAnEmptyAnswer) {
  MessagesWriter writer = new_writer();
  const auto events = take_all(writer, {finished_event("stop")});
  EXPECT_EQ(events.size(), 3u);
  EXPECT_EQ(content_of(writer).dump(), "[]");
}

}  // namespace
}  // namespace cachalot
