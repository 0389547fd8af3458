// The tokens of one answer -> its parts, as soon as they are certain: characters, reasoning,
// content and calls, with stop strings looked for in the content.
#pragma once

#include <string>
#include <vector>

#include "chat/stream_parser.h"
#include "engine/generation.h"
#include "engine/stop_strings.h"
#include "tokenizer/detokenizer.h"

namespace cachalot {

class AnswerReader {
 public:
  // `tokenizer` outlives the reader.
  AnswerReader(const Tokenizer& tokenizer, const StreamParserOptions& parser,
               std::vector<std::string> stops, DecodeOptions decode = {});

  // The next token, no end token. What the stop strings hold back is given out before anything that
  // follows the content.
  std::vector<ParserEvent> push(int32_t token);
  // Whether to go on after the latest token. Once the block of calls is closed one more token is
  // waited for: it should be the end token, and belongs to what the model wrote.
  bool wants_more() const { return !stops_.stopped() && !was_complete_; }

  // The end: what was held back. Call once.
  std::vector<ParserEvent> finish(FinishReason reason);

  // After finish(). finish_reason: stop, length, tool_calls, cancelled or deadline.
  const ParsedMessage& message() const { return message_; }
  const std::string& text() const { return text_; }  // as generated
  const std::string& stop_sequence() const { return stops_.matched(); }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void take_text(const std::string& text, std::vector<ParserEvent>& out);
  void take_events(std::vector<ParserEvent> events, std::vector<ParserEvent>& out);
  void emit_content(std::string text, std::vector<ParserEvent>& out);

  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  StreamParser parser_;
  StopStrings stops_;
  bool was_complete_ = false;
  bool reasoning_;
  int64_t reasoning_tokens_ = 0;
  std::string text_, content_;
  ParsedMessage message_;
};

}  // namespace cachalot
