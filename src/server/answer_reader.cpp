#include "server/answer_reader.h"

#include <utility>

#include "chat/control_tokens.h"

namespace cachalot {

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const StreamParserOptions& parser,
                           std::vector<std::string> stops, DecodeOptions decode)
    : tokenizer_(tokenizer),
      detokenizer_(tokenizer, decode),
      parser_(parser),
      stops_(std::move(stops)),
      reasoning_(parser.start == AnswerStart::kReasoning) {}

std::vector<ParserEvent> AnswerReader::push(int32_t token) {
  std::vector<ParserEvent> events;
  if (reasoning_) ++reasoning_tokens_;
  if (tokenizer_.token_bytes(token) == control::kEndThink) reasoning_ = false;
  was_complete_ = parser_.finished();
  take_text(detokenizer_.push(token), events);
  return events;
}

std::vector<ParserEvent> AnswerReader::finish(FinishReason reason) {
  std::vector<ParserEvent> events;
  if (!stops_.stopped()) {
    take_text(detokenizer_.finish(), events);
    const StopCause cause = reason == FinishReason::stop ? StopCause::kStop : StopCause::kLength;
    take_events(parser_.finish(cause), events);
    if (!stops_.stopped()) emit_content(stops_.finish(), events);
  }
  message_ = parser_.message();
  message_.content = std::move(content_);
  if (stops_.stopped()) message_.finish_reason = "stop";
  if (reason == FinishReason::cancelled || reason == FinishReason::deadline)
    message_.finish_reason = finish_reason_name(reason);
  return events;
}

void AnswerReader::take_text(const std::string& text, std::vector<ParserEvent>& out) {
  text_ += text;
  take_events(parser_.feed(text), out);
}

void AnswerReader::take_events(std::vector<ParserEvent> events, std::vector<ParserEvent>& out) {
  for (ParserEvent& event : events) {
    if (stops_.stopped()) return;
    if (event.kind != ParserEvent::kReasoning) reasoning_ = false;
    if (event.kind == ParserEvent::kContent) {
      emit_content(stops_.push(event.text), out);
      continue;
    }
    if (event.kind == ParserEvent::kCallStart) emit_content(stops_.finish(), out);
    out.push_back(std::move(event));
  }
}

void AnswerReader::emit_content(std::string text, std::vector<ParserEvent>& out) {
  if (text.empty()) return;
  content_ += text;
  out.push_back({ParserEvent::kContent, std::move(text)});
}

}  // namespace cachalot
