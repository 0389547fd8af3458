#include "chat/stream_parser.h"

#include <algorithm>
#include <array>

#include "chat/control_tokens.h"
#include "chat/json_value.h"

namespace cachalot {
namespace {

constexpr std::array<std::string_view, 2> kOpener = {"<｜DSML｜", "<|DSML|"};
constexpr std::array<std::string_view, 2> kCloser = {"</｜DSML｜", "</|DSML|"};
constexpr std::array<std::string_view, 1> kEndThink = {control::kEndThink};
constexpr std::array<std::string_view, 1> kInvokeName = {"invoke name=\""};
constexpr std::array<std::string_view, 1> kParameterName = {"parameter name=\""};
constexpr std::array<std::string_view, 4> kParameterTag = {
    "<｜DSML｜ parameter name=\"", "<｜DSML｜parameter name=\"", "<|DSML| parameter name=\"",
    "<|DSML|parameter name=\""};
constexpr std::array<std::string_view, 2> kKind = {" string=\"true\">", " string=\"false\">"};
constexpr std::array<std::string_view, 10> kCloseNames = {
    " calls>",         "calls>",   " tool_calls>", "tool_calls>", " function_calls>",
    "function_calls>", " invoke>", "invoke>",      " parameter>", "parameter>"};

// Names and keys beyond this are runaway output.
constexpr size_t kLongestName = 1024;

struct Match {
  enum { kNo, kPartial, kFull } kind = kNo;
  std::string_view token = {};
};

// Whether `text` begins with a token, or could if more came. No token is the prefix of another.
Match match(std::string_view text, std::span<const std::string_view> tokens) {
  Match result;
  for (const std::string_view token : tokens) {
    if (text.starts_with(token)) return {Match::kFull, token};
    if (token.starts_with(text)) result.kind = Match::kPartial;
  }
  return result;
}

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

StreamParser::StreamParser(StreamParserOptions options) : options_(std::move(options)) {
  switch (options_.start) {
    case AnswerStart::kReasoning:
      state_ = State::kReasoning;
      break;
    case AnswerStart::kContent:
      state_ = State::kContent;
      break;
    case AnswerStart::kToolCalls:
      state_ = State::kCalls;
      break;
    case AnswerStart::kRaw:
      state_ = State::kRaw;
      break;
  }
  at_start_ = !options_.keep_leading_newlines;
}

std::vector<ParserEvent> StreamParser::feed(std::string_view bytes) {
  if (finished()) return {};
  pending_ += bytes;
  while (offset_ < pending_.size() && step()) {
  }
  if (finished()) offset_ = pending_.size();
  pending_.erase(0, offset_);
  offset_ = 0;
  return std::exchange(events_, {});
}

bool StreamParser::step() {
  switch (state_) {
    case State::kReasoning:
    case State::kContent:
      return step_text();
    case State::kRaw:
      emit_text(rest());
      consume(rest().size());
      return true;
    case State::kCalls:
      return step_calls();
    case State::kCallName:
      return step_call_name();
    case State::kCallNameEnd:
      return step_call_name_end();
    case State::kInvoke:
      return step_invoke();
    case State::kKey:
      return step_key();
    case State::kKeyEnd:
      return step_key_end();
    case State::kValue:
      return step_value();
    case State::kValueClose:
    case State::kInvokeClose:
    case State::kCallsClose:
      return step_close();
    case State::kFinished:
    case State::kFailed:
      return false;
  }
  return false;
}

// Reasoning and content: text, newlines that wait for what follows them, and markers.
bool StreamParser::step_text() {
  const std::string_view text = rest();
  if (text[0] == '\n') {
    const size_t count = std::min(text.find_first_not_of('\n'), text.size());
    if (!at_start_) held_newlines_ += count;
    consume(count);
    return true;
  }
  if (text[0] != '<') {
    const size_t count = std::min(text.find_first_of("\n<"), text.size());
    emit_text(text.substr(0, count));
    consume(count);
    return true;
  }
  const Match end = match(text, kEndThink);
  if (end.kind == Match::kFull) {
    consume(end.token.size());
    if (state_ == State::kContent) {
      warn("a stray </think> in the content was removed");
      return true;
    }
    state_ = State::kContent;
    held_newlines_ = 0;
    at_start_ = true;
    return true;
  }
  const Match opener = options_.tools ? match(text, kOpener) : Match();
  if (opener.kind == Match::kFull) {
    consume(opener.token.size());
    held_newlines_ = 0;
    state_ = State::kCalls;
    return true;
  }
  if (end.kind == Match::kPartial || opener.kind == Match::kPartial) return false;
  emit_text(text.substr(0, 1));
  consume(1);
  return true;
}

bool StreamParser::step_calls() {
  const size_t skip = std::min(rest().find_first_of("ip<"), rest().size());
  consume(skip);
  const std::string_view text = rest();
  if (text.empty()) return true;
  const Match invoke = match(text, kInvokeName);
  const Match parameter = match(text, kParameterName);
  const Match closer = match(text, kCloser);
  if (invoke.kind == Match::kFull) {
    consume(invoke.token.size());
    state_ = State::kCallName;
  } else if (parameter.kind == Match::kFull) {
    fail_parse("a parameter outside an invoke");
  } else if (closer.kind == Match::kFull) {
    consume(closer.token.size());
    state_ = State::kCallsClose;
  } else if (invoke.kind == Match::kPartial || parameter.kind == Match::kPartial ||
             closer.kind == Match::kPartial) {
    return false;
  } else {
    consume(1);
  }
  return true;
}

// Text up to a quote; waits for the quote, fails on text that can be no name.
bool StreamParser::take_quoted(std::string& text, const char* what) {
  const size_t end = rest().find_first_of("\"\n");
  if (std::min(end, rest().size()) > kLongestName) {
    fail_parse(fmt::format("a {} longer than {} bytes", what, kLongestName));
    return false;
  }
  if (end == rest().npos) return false;
  if (rest()[end] == '\n' || end == 0) {
    fail_parse(end == 0 ? fmt::format("an empty {}", what)
                        : fmt::format("a line break in a {}", what));
    return false;
  }
  text = rest().substr(0, end);
  consume(end + 1);
  return true;
}

bool StreamParser::step_call_name() {
  std::string name;
  if (!take_quoted(name, "tool name")) return false;
  begin_call(name);
  state_ = State::kCallNameEnd;
  return true;
}

bool StreamParser::step_call_name_end() {
  if (rest()[0] == '>') {
    state_ = State::kInvoke;
  } else if (rest()[0] != ' ') {
    fail_parse("expected '>' after the name of an invoke");
  }
  consume(1);
  return true;
}

bool StreamParser::step_invoke() {
  const std::string_view text = rest();
  if (is_blank(text[0])) {
    consume(1);
    return true;
  }
  const Match parameter = match(text, kParameterTag);
  const Match closer = match(text, kCloser);
  if (parameter.kind == Match::kFull) {
    consume(parameter.token.size());
    state_ = State::kKey;
  } else if (closer.kind == Match::kFull) {
    consume(closer.token.size());
    state_ = State::kInvokeClose;
  } else if (parameter.kind == Match::kPartial || closer.kind == Match::kPartial) {
    return false;
  } else {
    fail_parse("text that is no <｜DSML｜ parameter> tag inside an invoke");
  }
  return true;
}

bool StreamParser::step_key() {
  if (!take_quoted(key_, "parameter name")) return false;
  state_ = State::kKeyEnd;
  return true;
}

bool StreamParser::step_key_end() {
  const Match kind = match(rest(), kKind);
  if (kind.kind == Match::kPartial) return false;
  if (kind.kind == Match::kNo) {
    fail_parse(fmt::format("parameter '{}' without string=\"true|false\"", key_));
    return true;
  }
  consume(kind.token.size());
  begin_value(kind.token == kKind[0]);
  return true;
}

bool StreamParser::step_value() {
  const std::string_view text = rest();
  size_t count = std::min(text.find('<'), text.size());
  if (count == 0) {
    const Match closer = match(text, kCloser);
    if (closer.kind == Match::kPartial) return false;
    if (closer.kind == Match::kFull) {
      consume(closer.token.size());
      state_ = State::kValueClose;
      return true;
    }
    count = 1;
  }
  ParsedParameter& parameter = parameters_.back();
  parameter.value += text.substr(0, count);
  if (parameter.is_string) {
    std::string escaped;
    append_json_escaped(escaped, text.substr(0, count));
    emit_arguments(escaped);
  } else {
    emit_arguments(text.substr(0, count));
  }
  consume(count);
  return true;
}

bool StreamParser::step_close() {
  const Match name = match(rest(), kCloseNames);
  if (name.kind == Match::kPartial) return false;
  if (name.kind == Match::kNo) {
    fail_parse("a misspelled closing tag");
    return true;
  }
  consume(name.token.size());
  std::string_view bare = name.token;
  bare.remove_suffix(1);
  if (bare.front() == ' ') bare.remove_prefix(1);
  close_tag(bare);
  return true;
}

void StreamParser::close_tag(std::string_view name) {
  const bool ends_block = name != "invoke" && name != "parameter";
  if (state_ == State::kValueClose) {
    if (name != "parameter") return fail_parse("a value that no </｜DSML｜ parameter> closes");
    end_value();
    state_ = State::kInvoke;
    return;
  }
  if (state_ == State::kInvokeClose) {
    if (name == "parameter") return fail_parse("</｜DSML｜ parameter> without a parameter");
    end_call();
  }
  state_ = State::kCalls;
  if (ends_block) {
    state_ = State::kFinished;
    emit(ParserEvent::kFinished, {});
  }
}

void StreamParser::begin_call(std::string_view qualified) {
  ParsedCall call;
  set_call_name(call, qualified);
  call.id = options_.call_id_prefix + std::to_string(message_.tool_calls.size());
  events_.push_back({ParserEvent::kCallStart,
                     {},
                     message_.tool_calls.size(),
                     call.id,
                     call.name,
                     call.name_space});
  message_.tool_calls.push_back(std::move(call));
  parameters_.clear();
}

void StreamParser::begin_value(bool is_string) {
  const bool repeated = std::any_of(parameters_.begin(), parameters_.end(),
                                    [&](const ParsedParameter& p) { return p.key == key_; });
  if (repeated) warn(fmt::format("parameter '{}' was given twice; the last one counts", key_));
  emit_arguments(
      fmt::format("{}\"{}\": {}", parameters_.empty() ? "{" : ", ", key_, is_string ? "\"" : ""));
  parameters_.push_back({key_, is_string, {}});
  state_ = State::kValue;
}

void StreamParser::end_value() {
  const ParsedParameter& parameter = parameters_.back();
  if (parameter.is_string) {
    emit_arguments("\"");
  } else if (!parse_json(parameter.value)) {
    warn(fmt::format("the value of parameter '{}' is not valid JSON", parameter.key));
  }
}

void StreamParser::end_call() {
  emit_arguments(parameters_.empty() ? "{}" : "}");
  ParsedCall& call = message_.tool_calls.back();
  call.arguments = arguments_text(parameters_);
  call.complete = true;
  emit(ParserEvent::kCallEnd, {});
}

void StreamParser::emit(ParserEvent::Kind kind, std::string_view text) {
  const size_t call = message_.tool_calls.empty() ? 0 : message_.tool_calls.size() - 1;
  const bool is_delta = kind == ParserEvent::kReasoning || kind == ParserEvent::kContent ||
                        kind == ParserEvent::kArguments;
  if (is_delta && !events_.empty() && events_.back().kind == kind && events_.back().call == call) {
    events_.back().text += text;
    return;
  }
  events_.push_back({kind, std::string(text), call});
}

void StreamParser::emit_text(std::string_view text) {
  const bool reasoning = state_ == State::kReasoning;
  const auto kind = reasoning ? ParserEvent::kReasoning : ParserEvent::kContent;
  std::string& whole = reasoning ? message_.reasoning_content : message_.content;
  const std::string newlines(std::exchange(held_newlines_, 0), '\n');
  at_start_ = false;
  for (const std::string_view part : {std::string_view(newlines), text}) {
    if (part.empty()) continue;
    whole += part;
    emit(kind, part);
  }
}

void StreamParser::emit_arguments(std::string_view text) {
  if (text.empty()) return;
  message_.tool_calls.back().arguments += text;
  emit(ParserEvent::kArguments, text);
}

void StreamParser::warn(std::string text) {
  emit(ParserEvent::kWarning, text);
  message_.warnings.push_back(std::move(text));
}

void StreamParser::drop_open_call() {
  if (!message_.tool_calls.empty() && !message_.tool_calls.back().complete) {
    message_.tool_calls.pop_back();
  }
}

void StreamParser::fail_parse(std::string text) {
  emit(ParserEvent::kFailed, text);
  message_.failure = std::move(text);
  state_ = State::kFailed;
  drop_open_call();
}

std::vector<ParserEvent> StreamParser::finish(StopCause cause) {
  switch (state_) {
    case State::kReasoning:
    case State::kContent:
    case State::kRaw:
      if (held_newlines_ > 0 || !rest().empty()) emit_text(rest());
      break;
    case State::kCalls:
    case State::kCallsClose:
      if (message_.tool_calls.empty()) warn("a block of calls was opened, but holds no call");
      break;
    case State::kFinished:
    case State::kFailed:
      break;
    case State::kValueClose:
    case State::kInvokeClose:
      // The marker alone ends a value or a call; only the rest of the tag was cut off.
      if (cause == StopCause::kLength) {
        state_ == State::kValueClose ? end_value() : end_call();
        break;
      }
      [[fallthrough]];
    default:
      if (cause == StopCause::kStop) fail_parse("the answer ends inside a call");
  }
  pending_.clear();
  offset_ = 0;
  const bool called = !message_.tool_calls.empty() && cause == StopCause::kStop;
  message_.finish_reason = cause == StopCause::kLength ? "length" : called ? "tool_calls" : "stop";
  return std::exchange(events_, {});
}

}  // namespace cachalot
