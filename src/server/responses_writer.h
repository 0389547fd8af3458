// What happens to an answer -> the events and the final response of OpenAI's /v1/responses.
//
// created, in_progress; per item output_item.added, its parts and deltas, output_item.done; then
// completed, incomplete or failed. Items are reasoning, message, function_call and
// custom_tool_call, in the order the model wrote them. A streamed answer and a whole one are equal
// since both come from here.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/call_arguments.h"
#include "server/event_writer.h"

namespace cachalot {

struct ResponsesSettings {
  std::string id;                      // the part of all ids behind their kind: "resp_" + id
  int64_t created_at = 0;              // seconds since 1970
  Json echo;                           // members that repeat the request
  std::set<std::string> custom_tools;  // qualified names
  bool logprobs = false;
};

class ResponsesWriter final : public EventWriter {
 public:
  explicit ResponsesWriter(ResponsesSettings settings);

  std::vector<ServerEvent> take(const AnswerEvent& event) override;
  std::vector<ServerEvent> waiting() const override { return {}; }
  const std::optional<ApiError>& error() const override { return error_; }
  const Json& whole() const override { return response_; }

 private:
  enum class Item { none, reasoning, message, function_call, custom_tool_call };

  void start();
  void take_delta(const AnswerEvent& event);
  void take_text(Item kind, const AnswerEvent& event);
  void begin_call(const ParserEvent& call);
  void take_arguments(const std::string& text);
  void open(Item kind, const char* prefix, Json::Object members);
  void close(const char* status);
  void close_text();
  void close_call();
  void finish(const AnswerEvent& event);
  void fail_answer(ApiError error);

  Json text_part() const;
  Json place() const;  // output_index, item_id
  Json part_place() const;
  void put(const char* type, Json members);
  void put_response(const char* type);

  ResponsesSettings settings_;
  std::vector<ServerEvent> out_;  // of the event being taken
  int64_t sequence_ = 0;
  bool started_ = false;
  Item kind_ = Item::none;
  Json item_;         // the open one
  std::string text_;  // of it; arguments or input of a call
  Json::Array logprobs_;
  InputArgument input_;  // of an open custom_tool_call
  Json::Array output_;
  Json response_;
  std::optional<ApiError> error_;
};

}  // namespace cachalot
