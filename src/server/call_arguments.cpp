#include "server/call_arguments.h"

#include <charconv>
#include <optional>

namespace cachalot {
namespace {

// Where a JSON text stands: its open brackets, and the last place behind a complete member.
struct Nesting {
  std::string closers;  // of the open brackets, outermost first
  bool in_string = false;
  bool escaped = false;   // behind a backslash
  size_t last_comma = 0;  // of the outermost object; 0: none
};

Nesting nesting_of(std::string_view text) {
  Nesting nesting;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (nesting.in_string) {
      if (nesting.escaped) {
        nesting.escaped = false;
      } else if (c == '\\') {
        nesting.escaped = true;
      } else if (c == '"') {
        nesting.in_string = false;
      }
    } else if (c == '"') {
      nesting.in_string = true;
    } else if (c == '{' || c == '[') {
      nesting.closers += c == '{' ? '}' : ']';
    } else if ((c == '}' || c == ']') && !nesting.closers.empty()) {
      nesting.closers.pop_back();
    } else if (c == ',' && nesting.closers.size() == 1) {
      nesting.last_comma = i;
    }
  }
  return nesting;
}

std::optional<Json> parse_object(const std::string& text) {
  auto json = parse_json(text);
  if (!json || !json->object()) return std::nullopt;
  return std::move(*json);
}

std::optional<Json> close_and_parse(std::string_view text) {
  const Nesting nesting = nesting_of(text);
  std::string closed(text);
  if (nesting.escaped) closed.pop_back();
  if (nesting.in_string) closed += '"';
  closed.append(nesting.closers.rbegin(), nesting.closers.rend());
  if (auto object = parse_object(closed)) return object;
  if (nesting.last_comma == 0) return std::nullopt;
  return parse_object(std::string(text.substr(0, nesting.last_comma)) + "}");
}

constexpr std::string_view kOpening = "{\"input\": \"";

// The character of \n, \t ... ; 0: none.
char escaped_character(char letter) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
  const size_t at = kLetters.find(letter);
  return at == kLetters.npos ? '\0' : kCharacters[at];
}

}  // namespace

Json arguments_object(std::string_view text, bool complete) {
  if (auto object = parse_object(std::string(text))) return std::move(*object);
  if (complete) return Json(Json::Object{{"arguments", Json(text)}});
  if (auto object = close_and_parse(text)) return std::move(*object);
  return Json(Json::Object{});
}

// Reads one character or escape of the text. False: more bytes are needed, or the text has ended.
// Only control characters are written as \u here, by append_json_escaped.
bool InputArgument::read_character(std::string& out) {
  const std::string_view rest = std::string_view(arguments_).substr(read_);
  if (rest.empty()) return false;
  if (rest[0] == '"') {
    state_ = State::closed;
    return false;
  }
  if (rest[0] != '\\') {
    out += rest[0];
    ++read_;
    return true;
  }
  if (rest.size() < 2) return false;
  if (rest[1] != 'u') {
    out += escaped_character(rest[1]);
    read_ += 2;
    return true;
  }
  if (rest.size() < 6) return false;
  unsigned code = 0;
  std::from_chars(rest.data() + 2, rest.data() + 6, code, 16);
  out += static_cast<char>(code);
  read_ += 6;
  return true;
}

std::string InputArgument::push(std::string_view arguments) {
  arguments_ += arguments;
  if (state_ == State::opening) {
    const std::string_view all = arguments_;
    if (all.starts_with(kOpening)) {
      state_ = State::text;
      read_ = kOpening.size();
    } else if (!kOpening.starts_with(all)) {
      state_ = State::other;
    }
  }
  std::string text;
  while (state_ == State::text && read_character(text)) {
  }
  return text;
}

std::string InputArgument::finish() {
  if (state_ == State::text || state_ == State::closed) return {};
  const auto object = parse_object(arguments_);
  const Json* input = object ? object->find("input") : nullptr;
  return input && input->string() ? *input->string() : arguments_;
}

}  // namespace cachalot
