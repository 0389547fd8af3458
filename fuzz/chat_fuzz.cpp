// Requests: JSON -> conversation -> prompt -> the strict parser. Answers: the same bytes in two
// splits must parse to the same message.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "chat/render.h"
#include "chat/stream_parser.h"
#include "chat/strict_parser.h"

namespace {

using namespace cachalot;

void fuzz_request(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return;
  const std::string dumped = json->dump();
  const auto again = parse_json(dumped);
  CACHALOT_CHECK(again && again->dump() == dumped, "a JSON round trip changed '{}'", dumped);
  const auto conversation = parse_conversation(*json, EffortNames::kPublic);
  if (!conversation) return;
  const auto prompt = render(*conversation);
  if (prompt) (void)parse_strict(prompt->text(), conversation->options.thinking);
}

ParsedMessage parse(const StreamParserOptions& options, StopCause cause, std::string_view text,
                    size_t step) {
  StreamParser parser(options);
  for (size_t at = 0; at < text.size(); at += step) parser.feed(text.substr(at, step));
  parser.finish(cause);
  return parser.message();
}

void fuzz_answer(uint8_t choice, std::string_view text) {
  const StreamParserOptions options{.start = static_cast<AnswerStart>(choice & 3),
                                    .keep_leading_newlines = (choice & 4) != 0,
                                    .tools = (choice & 8) != 0};
  const StopCause cause = (choice & 16) != 0 ? StopCause::kStop : StopCause::kLength;
  const ParsedMessage whole = parse(options, cause, text, text.size() + 1);
  const ParsedMessage parts = parse(options, cause, text, 1 + (choice >> 5));
  CACHALOT_CHECK(whole.content == parts.content &&
                 whole.reasoning_content == parts.reasoning_content &&
                 whole.failure == parts.failure && whole.warnings == parts.warnings &&
                 whole.tool_calls.size() == parts.tool_calls.size());
  for (size_t i = 0; i < whole.tool_calls.size(); ++i) {
    CACHALOT_CHECK(whole.tool_calls[i].name == parts.tool_calls[i].name &&
                   whole.tool_calls[i].arguments == parts.tool_calls[i].arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz_request(text);
  fuzz_answer(data[0], text.substr(1));
  return 0;
}
