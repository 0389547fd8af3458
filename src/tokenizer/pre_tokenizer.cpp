#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/deepseek_split.h"
#include "tokenizer/json_kind.h"
#include "tokenizer/utf8.h"

namespace cachalot {

using nlohmann::json;

namespace {

Status check_byte_level(const json& step) {
  if (step.value("add_prefix_space", json(true)) != false ||
      step.value("use_regex", json(true)) != false) {
    return fail("ByteLevel: only add_prefix_space false and use_regex false are supported");
  }
  return {};
}

Result<std::string> split_pattern(const json& step) {
  if (step.value("behavior", json()) != "Isolated") {
    return fail("Split: behavior {}: only \"Isolated\" is supported",
                dump_text(step.value("behavior", json())));
  }
  if (step.value("invert", json(false)) != false) return fail("Split: invert is not supported");
  const json pattern = step.value("pattern", json());
  if (!pattern.is_object() || !pattern.contains("Regex") || !pattern["Regex"].is_string()) {
    return fail("Split: pattern {}: only {{\"Regex\": ...}} is supported", dump_text(pattern));
  }
  return pattern["Regex"].get<std::string>();
}

// The Split patterns, in order.
Result<std::vector<std::string>> read_patterns(const json& description) {
  json steps = json::array({description});
  if (kind_of(description) == "Sequence") {
    steps = description.value("pretokenizers", json());
    if (!steps.is_array()) return fail("a Sequence needs a list \"pretokenizers\"");
  }
  if (steps.empty()) return fail("no steps, expected ByteLevel at least");
  std::vector<std::string> patterns;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string expected = i + 1 == steps.size() ? "ByteLevel" : "Split";
    const std::string kind = kind_of(steps[i]);
    if (kind != expected) {
      return fail("step {} of {}: {} is not supported, expected {}", i + 1, steps.size(), kind,
                  expected);
    }
    if (kind == "ByteLevel") {
      CACHALOT_OK(check_byte_level(steps[i]));
    } else {
      CACHALOT_TRY(std::string pattern, split_pattern(steps[i]));
      patterns.push_back(std::move(pattern));
    }
  }
  return patterns;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const json& description, Method method) {
  const auto patterns = read_patterns(description);
  if (!patterns) return fail(patterns.error().in("pre_tokenizer"));
  PreTokenizer result;
  result.is_deepseek_ = method == Method::fastest && is_deepseek_split(*patterns);
  if (result.is_deepseek_) return result;
  for (const std::string& pattern : *patterns) {
    auto regex = Regex::compile(pattern);
    if (!regex) return fail(regex.error().in("pre_tokenizer"));
    result.steps_.push_back(std::move(*regex));
  }
  return result;
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) split_valid(text.substr(0, valid), pieces);
    text.remove_prefix(valid);
    size_t broken = 0;
    while (broken < text.size()) {
      const Utf8Step step = next_utf8(text.substr(broken));
      if (step.valid) break;
      broken += step.length;
    }
    if (broken > 0) pieces.push_back(text.substr(0, broken));
    text.remove_prefix(broken);
  }
}

void PreTokenizer::split_valid(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (is_deepseek_) return deepseek_split(text, pieces);
  std::vector<std::string_view> current{text}, next;
  for (const Regex& step : steps_) {
    next.clear();
    for (const std::string_view piece : current) step.split_isolated(piece, next);
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
}

}  // namespace cachalot
