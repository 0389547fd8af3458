#include "chat/strict_parser.h"

#include <algorithm>
#include <span>

#include "chat/control_tokens.h"

namespace cachalot {
namespace {

constexpr std::string_view kCallsStart = "\n\n<｜DSML｜ calls";
constexpr std::string_view kCallsEnd = "</｜DSML｜ calls>";
constexpr std::string_view kInvoke = "<｜DSML｜ invoke";
constexpr std::string_view kInvokeEnd = "</｜DSML｜ invoke";
constexpr std::string_view kParameter = "<｜DSML｜ parameter";
constexpr std::string_view kParameterEnd = "/｜DSML｜ parameter";

class StrictParser {
 public:
  explicit StrictParser(std::string_view text) : text_(text) {}

  Result<ParsedMessage> run(bool thinking) {
    ParsedMessage message;
    std::string_view stop;
    if (thinking) {
      CACHALOT_TRY(const auto reasoning, read_until({control::kEndThink, kCallsStart}, stop));
      if (stop != control::kEndThink) return error("a block of calls before </think>");
      message.reasoning_content = reasoning;
    }
    CACHALOT_TRY(const auto content, read_until({control::kEnd, kCallsStart}, stop));
    message.content = content;
    if (stop == kCallsStart) {
      CACHALOT_OK(calls(message));
      CACHALOT_TRY(const auto after, read_until({control::kEnd}, stop));
      if (!after.empty()) return error("text after the block of calls");
    }
    if (at_ != text_.size()) return error("text after the end token");
    for (const std::string_view token :
         {control::kBegin, control::kEnd, control::kThink, control::kEndThink, control::kMarkup}) {
      if (message.content.find(token) != std::string::npos ||
          message.reasoning_content.find(token) != std::string::npos) {
        return error(fmt::format("'{}' left in the content or reasoning", token));
      }
    }
    message.finish_reason = message.tool_calls.empty() ? "stop" : "tool_calls";
    return message;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;

  struct Stops {
    std::string_view first, second = {};
  };

  tl::unexpected<Error> error(std::string_view what) const {
    return fail("answer, byte {}: {}", at_, what);
  }

  // The text up to the earlier of two stops, which is skipped and told in `stop`.
  Result<std::string_view> read_until(Stops stops, std::string_view& stop) {
    size_t best = text_.npos;
    for (const std::string_view candidate : {stops.first, stops.second}) {
      const size_t found = candidate.empty() ? text_.npos : text_.find(candidate, at_);
      if (found < best) {
        best = found;
        stop = candidate;
      }
    }
    if (best == text_.npos) return error(fmt::format("expected '{}' to follow", stops.first));
    const std::string_view before = text_.substr(at_, best - at_);
    at_ = best + stop.size();
    return before;
  }

  Status calls(ParsedMessage& message) {
    std::string_view stop;
    while (true) {
      CACHALOT_TRY(const auto between, read_until({kInvoke, kCallsEnd}, stop));
      if (between != ">\n") return error("expected '>' and a line break after a tag");
      if (stop == kCallsEnd) return {};
      CACHALOT_OK(call(message));
    }
  }

  Status call(ParsedMessage& message) {
    std::string_view stop;
    CACHALOT_TRY(std::string_view head, read_until({kParameter, kInvokeEnd}, stop));
    // An invoke without parameters has an empty line.
    const bool one_line = head.ends_with("\">\n");
    if (head.ends_with("\">\n\n")) head.remove_suffix(1);
    if (!head.starts_with(" name=\"") || !head.ends_with("\">\n") ||
        head.size() < std::string_view(" name=\"\">\n").size() ||
        (!one_line && stop == kParameter)) {
      return error("expected name=\"...\"> and a line break in an invoke");
    }
    ParsedCall call;
    head.remove_prefix(7);
    head.remove_suffix(3);
    if (head.empty() || head.find('"') != head.npos) return error("a malformed tool name");
    set_call_name(call, head);
    std::vector<ParsedParameter> parameters;
    while (stop == kParameter) {
      CACHALOT_OK(parameter(parameters));
      CACHALOT_TRY(const auto between, read_until({kParameter, kInvokeEnd}, stop));
      if (between != ">\n") return error("expected '>' and a line break after a parameter");
    }
    call.arguments = arguments_text(parameters);
    call.complete = true;
    message.tool_calls.push_back(std::move(call));
    return {};
  }

  Status parameter(std::vector<ParsedParameter>& parameters) {
    std::string_view stop;
    CACHALOT_TRY(std::string_view body, read_until({kParameterEnd}, stop));
    constexpr std::string_view kName = " name=\"";
    constexpr std::string_view kTrue = "\" string=\"true\">";
    constexpr std::string_view kFalse = "\" string=\"false\">";
    const size_t end_true = body.find(kTrue), end_false = body.find(kFalse);
    const size_t end = std::min(end_true, end_false);
    if (!body.starts_with(kName) || end == body.npos || end < kName.size() ||
        !body.ends_with('<')) {
      return error("expected name=\"...\" string=\"true|false\">...< in a parameter");
    }
    body.remove_suffix(1);
    ParsedParameter result;
    result.key = body.substr(kName.size(), end - kName.size());
    result.is_string = end == end_true;
    result.value = body.substr(end + (result.is_string ? kTrue : kFalse).size());
    for (const ParsedParameter& other : parameters) {
      if (other.key == result.key) return error(fmt::format("parameter '{}' twice", result.key));
    }
    parameters.push_back(std::move(result));
    return {};
  }
};

}  // namespace

Result<ParsedMessage> parse_strict(std::string_view completion, bool thinking) {
  return StrictParser(completion).run(thinking);
}

}  // namespace cachalot
