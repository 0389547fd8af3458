// What happens to an answer -> the events and the final message of Anthropic's /v1/messages.
//
// message_start; per content block content_block_start, its deltas, content_block_stop;
// message_delta; message_stop. Blocks are thinking, text and tool_use, in the order the model wrote
// them. A streamed answer and a whole one are equal since both come from here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/event_writer.h"

namespace cachalot {

class MessagesWriter final : public EventWriter {
 public:
  // `id` begins with "msg_". It is the signature of thinking blocks, too: clients want one, and
  // nothing is signed here.
  MessagesWriter(std::string id, std::string model, std::string request_id);

  std::vector<ServerEvent> take(const AnswerEvent& event) override;
  // A ping, but nothing before message_start, which must come first.
  std::vector<ServerEvent> waiting() const override;
  const std::optional<ApiError>& error() const override { return error_; }
  const Json& whole() const override { return message_; }

 private:
  enum class Block { none, thinking, text, tool_use };

  void start(std::vector<ServerEvent>& out);
  void take_delta(const ParserEvent& delta, std::vector<ServerEvent>& out);
  void take_text(Block kind, const std::string& text, std::vector<ServerEvent>& out);
  void open(Block kind, Json block, std::vector<ServerEvent>& out);
  void put_delta(const char* type, const char* member, const std::string& text,
                 std::vector<ServerEvent>& out);
  void close(std::vector<ServerEvent>& out);
  void finish(const AnswerEvent& event, std::vector<ServerEvent>& out);
  void fail_answer(ApiError error, std::vector<ServerEvent>& out);
  Json usage(int64_t output_tokens) const;

  std::string id_;
  std::string model_;
  std::string request_id_;
  bool started_ = false;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  Block block_ = Block::none;
  Json open_block_;   // without its text
  std::string text_;  // of the open block; arguments as written, for a tool_use
  Json::Array content_;
  Json message_;
  std::optional<ApiError> error_;
};

}  // namespace cachalot
