// The answer of the model, as it appears -> reasoning, content and tool calls.
//
// Bytes may come in any split; the joined deltas and the final message depend on the text alone.
// Text that could begin a marker is held back until it is decided. Characters are never cut by the
// parser itself: deltas are whole if the input is fed in whole characters.
//
// Beyond the exact format these are understood: a missing wrapper around invokes, tag names with or
// without the leading space, ASCII pipes (<|DSML|), calls named tool_calls or function_calls, a
// missing closing tag of an invoke before that of the block.
// These are failed parses (`failed()`), never calls with made-up arguments: a parameter tag without
// the marker or without string="true|false", a parameter outside an invoke, other text inside an
// invoke, a misspelled closing tag, a stop in the middle of a call. A sole parameter named
// `arguments` is passed on as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/parsed_message.h"
#include "chat/render.h"

namespace cachalot {

struct ParserEvent {
  enum Kind {
    kReasoning,  // text: more reasoning
    kContent,    // text: more content
    kCallStart,  // call: index; id, name, name_space are set
    kArguments,  // text: more of the arguments of call
    kCallEnd,    // call is complete
    kWarning,    // text: what was tolerated
    kFailed,     // text: what could not be parsed; nothing follows, generation may stop
    kFinished,   // the block of calls is closed; later text is ignored, generation may stop
  };
  Kind kind;
  std::string text;
  size_t call = 0;
  std::string id = {}, name = {}, name_space = {};
};

enum class StopCause { kStop, kLength };

struct StreamParserOptions {
  AnswerStart start = AnswerStart::kContent;
  bool keep_leading_newlines = false;
  bool tools = false;
  std::string call_id_prefix = "call_";  // ids are this and the index

  static StreamParserOptions for_prompt(const Prompt& prompt) {
    return {prompt.start, prompt.keep_leading_newlines, prompt.tools};
  }
};

class StreamParser {
 public:
  explicit StreamParser(StreamParserOptions options);

  std::vector<ParserEvent> feed(std::string_view bytes);
  // After the last byte: gives out what was held back. Call once.
  std::vector<ParserEvent> finish(StopCause cause);

  // Complete after finish().
  const ParsedMessage& message() const { return message_; }
  bool failed() const { return state_ == State::kFailed; }
  // Nothing that may follow changes the message.
  bool finished() const { return state_ == State::kFinished || failed(); }

 private:
  enum class State {
    kReasoning,
    kContent,
    kRaw,
    kCalls,        // between invokes: text is ignored
    kCallName,     // after invoke name="
    kCallNameEnd,  // after the name's quote
    kInvoke,       // between parameters
    kKey,          // after parameter name="
    kKeyEnd,       // after the key's quote
    kValue,
    kValueClose,   // after the marker of a closing tag that ends a value,
    kInvokeClose,  // ... met between parameters,
    kCallsClose,   // ... met between invokes
    kFinished,
    kFailed,
  };

  StreamParserOptions options_;
  State state_;
  std::string pending_;  // bytes not yet consumed, from offset_
  size_t offset_ = 0;
  size_t held_newlines_ = 0;                 // newlines that a marker would swallow
  bool at_start_ = true;                     // no text yet in this part of the answer
  std::vector<ParsedParameter> parameters_;  // of the open call
  std::string key_;
  std::vector<ParserEvent> events_;
  ParsedMessage message_;

  std::string_view rest() const { return std::string_view(pending_).substr(offset_); }
  void consume(size_t bytes) { offset_ += bytes; }
  void emit(ParserEvent::Kind kind, std::string_view text);
  void emit_text(std::string_view text);
  void emit_arguments(std::string_view text);
  void warn(std::string text);
  void fail_parse(std::string text);

  // Each consumes something and returns true, or returns false to wait for more bytes.
  bool step();
  bool step_text();
  bool step_calls();
  bool step_call_name();
  bool step_call_name_end();
  bool step_invoke();
  bool step_key();
  bool step_key_end();
  bool step_value();
  bool step_close();
  void close_tag(std::string_view name);
  bool take_quoted(std::string& text, const char* what);

  void begin_call(std::string_view qualified);
  void begin_value(bool is_string);
  void end_value();
  void end_call();
  void drop_open_call();
};

}  // namespace cachalot
