#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/deepseek_split.h"
#include "tokenizer/json_kind.h"
#include "tokenizer/utf8.h"

namespace cachalot {

using nlohmann::json;

Result<PreTokenizer> PreTokenizer::create(const json& description) {
  PreTokenizer result;
  json steps = json::array({description});
  if (kind_of(description) == "Sequence") {
    steps = description.value("pretokenizers", json());
    if (!steps.is_array()) return fail("pre_tokenizer: a Sequence needs a list \"pretokenizers\"");
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_last = i + 1 == steps.size();
    if ((kind_of(steps[i]) == "ByteLevel") != is_last) {
      return fail(
          "pre_tokenizer: expected Split steps and ByteLevel as the last, found {} as step "
          "{} of {}",
          kind_of(steps[i]), i + 1, steps.size());
    }
    if (auto status = result.add(steps[i]); !status) {
      return fail(status.error().in(fmt::format("pre_tokenizer, step {}", i + 1)));
    }
  }
  if (steps.empty()) return fail("pre_tokenizer: no steps, expected ByteLevel at least");
  result.is_deepseek_ = is_deepseek_split(result.patterns_);
  return result;
}

Status PreTokenizer::add(const json& step) {
  const std::string kind = kind_of(step);
  if (kind == "ByteLevel") {
    if (step.value("add_prefix_space", json(true)) != false ||
        step.value("use_regex", json(true)) != false) {
      return fail("ByteLevel: only add_prefix_space false and use_regex false are supported");
    }
    return {};
  }
  if (kind != "Split") return fail("{} is not supported", kind);
  if (step.value("behavior", json()) != "Isolated") {
    return fail("Split: behavior {}: only \"Isolated\" is supported",
                dump_text(step.value("behavior", json())));
  }
  if (step.value("invert", json(false)) != false) return fail("Split: invert is not supported");
  const json pattern = step.value("pattern", json());
  if (!pattern.is_object() || !pattern.contains("Regex") || !pattern["Regex"].is_string()) {
    return fail("Split: pattern {}: only {{\"Regex\": ...}} is supported", dump_text(pattern));
  }
  patterns_.push_back(pattern["Regex"]);
  CACHALOT_TRY(Regex regex, Regex::compile(patterns_.back()));
  steps_.push_back(std::move(regex));
  return {};
}

namespace {

// Calls use(part) for each maximal well-formed part of `text`; what is between them becomes pieces.
template <class Use>
void for_each_valid_part(std::string_view text, std::vector<std::string_view>& pieces, Use use) {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) use(text.substr(0, valid));
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

}  // namespace

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (!is_deepseek_) return split_by_patterns(text, pieces);
  for_each_valid_part(text, pieces, [&](std::string_view part) { deepseek_split(part, pieces); });
}

void PreTokenizer::split_by_patterns(std::string_view text,
                                     std::vector<std::string_view>& pieces) const {
  for_each_valid_part(text, pieces, [&](std::string_view part) {
    std::vector<std::string_view> current{part}, next;
    for (const Regex& step : steps_) {
      next.clear();
      for (const std::string_view piece : current) step.split_isolated(piece, next);
      current.swap(next);
    }
    pieces.insert(pieces.end(), current.begin(), current.end());
  });
}

}  // namespace cachalot
