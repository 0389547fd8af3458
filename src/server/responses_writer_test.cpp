#include "server/responses_writer.h"

#include <gtest/gtest.h>

#include "server/answer_events_for_test.h"
#include "server/responses_request.h"

namespace cachalot {
namespace {

ResponsesWriter new_writer(std::set<std::string> custom = {}) {
  return ResponsesWriter({.id = "1",
                          .created_at = 7,
                          .echo = Json(Json::Object{{"model", Json("nano")}}),
                          .custom_tools = std::move(custom)});
}

Json output_of(const ResponsesWriter& writer) { return *writer.whole().find("output"); }

TEST(ResponsesWriter, WritesTheEventsOfOpenAIsProtocol) {
  ResponsesWriter writer = new_writer();
  std::vector<std::string> lines;
  for (const ServerEvent& event : take_all(writer, answer_with_call())) {
    EXPECT_EQ(*event.data.find("type")->string(), event.name);
    EXPECT_EQ(event.data.find("sequence_number")->int64(), std::ssize(lines));
    Json rest = event.data;
    for (const char* member : {"type", "sequence_number", "response"}) rest.erase(member);
    lines.push_back(event.name.substr(9) + " " + rest.dump());
  }
  const std::vector<std::string> expected = {
      "created {}",
      "in_progress {}",
      R"(output_item.added {"output_index": 0, "item": {"id": "rs_1_0", "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}})",
      R"(content_part.added {"output_index": 0, "item_id": "rs_1_0", "content_index": 0, "part": {"type": "reasoning_text", "text": ""}})",
      R"(reasoning_text.delta {"output_index": 0, "item_id": "rs_1_0", "content_index": 0, "delta": "I look "})",
      R"(reasoning_text.delta {"output_index": 0, "item_id": "rs_1_0", "content_index": 0, "delta": "it up."})",
      R"(reasoning_text.done {"output_index": 0, "item_id": "rs_1_0", "content_index": 0, "text": "I look it up."})",
      R"(content_part.done {"output_index": 0, "item_id": "rs_1_0", "content_index": 0, "part": {"type": "reasoning_text", "text": "I look it up."}})",
      R"(output_item.done {"output_index": 0, "item": {"id": "rs_1_0", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I look it up."}], "status": "completed", "encrypted_content": "plain:I look it up."}})",
      R"(output_item.added {"output_index": 1, "item": {"id": "msg_1_1", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}})",
      R"(content_part.added {"output_index": 1, "item_id": "msg_1_1", "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []}})",
      R"(output_text.delta {"output_index": 1, "item_id": "msg_1_1", "content_index": 0, "delta": "One moment.", "logprobs": []})",
      R"(output_text.done {"output_index": 1, "item_id": "msg_1_1", "content_index": 0, "text": "One moment.", "logprobs": []})",
      R"(content_part.done {"output_index": 1, "item_id": "msg_1_1", "content_index": 0, "part": {"type": "output_text", "text": "One moment.", "annotations": [], "logprobs": []}})",
      R"(output_item.done {"output_index": 1, "item": {"id": "msg_1_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One moment.", "annotations": [], "logprobs": []}], "status": "completed"}})",
      R"(output_item.added {"output_index": 2, "item": {"id": "fc_1_2", "type": "function_call", "call_id": "call_7_0", "name": "get_weather", "arguments": "", "status": "in_progress"}})",
      R"(function_call_arguments.delta {"output_index": 2, "item_id": "fc_1_2", "delta": "{\"city\": \"Par"})",
      R"(function_call_arguments.delta {"output_index": 2, "item_id": "fc_1_2", "delta": "is\"}"})",
      R"(function_call_arguments.done {"output_index": 2, "item_id": "fc_1_2", "name": "get_weather", "arguments": "{\"city\": \"Paris\"}"})",
      R"(output_item.done {"output_index": 2, "item": {"id": "fc_1_2", "type": "function_call", "call_id": "call_7_0", "name": "get_weather", "arguments": "{\"city\": \"Paris\"}", "status": "completed"}})",
      "completed {}",
  };
  EXPECT_EQ(lines, expected);
}

TEST(ResponsesWriter, GivesTheSameResponseWholeAndStreamed) {
  ResponsesWriter writer = new_writer();
  const auto events = take_all(writer, answer_with_call());
  EXPECT_EQ(events.back().data.find("response")->dump(), writer.whole().dump());
  Json::Array items;
  for (const ServerEvent& event : events)
    if (event.name == "response.output_item.done") items.push_back(*event.data.find("item"));
  EXPECT_EQ(Json(items).dump(), output_of(writer).dump());
  EXPECT_EQ(writer.whole().find("status")->dump(), "\"completed\"");
  EXPECT_EQ(writer.whole().find("model")->dump(), "\"nano\"");
  EXPECT_EQ(writer.whole().find("usage")->dump(),
            R"({"input_tokens": 40, "input_tokens_details": )"
            R"({"cache_write_tokens": 0, "cached_tokens": 16}, )"
            R"("output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 5}, )"
            R"("total_tokens": 52})");
}

TEST(ResponsesWriter, GivesItemsThatARequestTakesBack) {
  ResponsesWriter writer = new_writer();
  take_all(writer, answer_with_call());
  Json items = output_of(writer);
  // Some clients keep nothing but the packed form.
  items.array()->front().erase("content");
  items.array()->insert(items.array()->begin(),
                        parse_json(R"({"role": "user", "content": "Weather?"})").value());
  items.array()->push_back(parse_json(R"({"type": "function_call_output", "call_id": "call_7_0",
      "output": "sun"})")
                               .value());
  const auto request =
      parse_responses_request(Json(Json::Object{{"input", items}}), {}, {.model_names = {"nano"}});
  ASSERT_TRUE(request) << request.error().message;
  const Message& turn = std::get<Chat>(request->chat.conversation.input).messages.at(1);
  EXPECT_EQ(turn.reasoning_content, "I look it up.");
  EXPECT_EQ(std::get<TextBlock>(turn.blocks.at(0)).text, "One moment.");
  EXPECT_EQ(turn.tool_calls.at(0).arguments.dump(), R"({"city": "Paris"})");
}

TEST(ResponsesWriter, GivesTheTextOfACustomTool) {
  ResponsesWriter writer = new_writer({"edit::apply_patch"});
  const auto events =
      take_all(writer, {call_event("c", "apply_patch", "edit"),
                        delta_event(ParserEvent::kArguments, "{\"input\": \"a\\"),
                        delta_event(ParserEvent::kArguments, "nb\"}"),
                        delta_event(ParserEvent::kCallEnd), finished_event("tool_calls")});
  std::vector<std::string> names;
  for (const ServerEvent& event : events) names.push_back(event.name);
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.custom_tool_call_input.delta",
                                             "response.custom_tool_call_input.delta",
                                             "response.custom_tool_call_input.done",
                                             "response.output_item.done",
                                             "response.completed"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(output_of(writer).dump(),
            R"([{"id": "ctc_1_0", "type": "custom_tool_call", "call_id": "c", )"
            R"("name": "apply_patch", "namespace": "edit", "input": "a\nb", )"
            R"("status": "completed"}])");
}

TEST(ResponsesWriter, EndsIncompleteAtTheLengthLimit) {
  ResponsesWriter writer = new_writer();
  const auto events =
      take_all(writer, {call_event("c", "f"), delta_event(ParserEvent::kArguments, R"({"a": "x)"),
                        finished_event("length")});
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(writer.whole().find("incomplete_details")->dump(),
            R"({"reason": "max_output_tokens"})");
  const Json item = output_of(writer).array()->at(0);
  EXPECT_EQ(item.find("status")->dump(), "\"incomplete\"");
  EXPECT_EQ(*item.find("arguments")->string(), R"({"a": "x)");
}

TEST(ResponsesWriter, FailsInTheMiddle) {
  ResponsesWriter writer = new_writer();
  const auto events = take_all(
      writer, {delta_event(ParserEvent::kContent, "a"), failed_event(ApiError(500, "broken"))});
  EXPECT_EQ(events.back().name, "response.failed");
  EXPECT_EQ(writer.whole().find("error")->dump(),
            R"({"code": "server_error", "message": "broken"})");
  EXPECT_EQ(writer.error()->message, "broken");
}

TEST(ResponsesWriter, FailsOnACallThatCannotBeRead) {
  ResponsesWriter writer = new_writer();
  AnswerEvent end = finished_event("stop");
  end.message.failure = "an empty parameter name";
  EXPECT_EQ(take_all(writer, {call_event("c", "f"), end}).back().name, "response.failed");
  EXPECT_EQ(writer.error()->status, 500);
}

}  // namespace
}  // namespace cachalot
