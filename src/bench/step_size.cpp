#include "bench/step_size.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>

namespace cachalot::bench {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

Result<int64_t> parse_size(std::string_view option, std::string_view text, int64_t least) {
  int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  int shift = 0;
  if (end + 1 == last) {
    const char unit = static_cast<char>(*end | 0x20);
    shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : -1;
  }
  if (error != std::errc() || shift < 0 || (shift == 0 && end != last)) {
    return fail("{}: expected numbers like 1,16,4K,1M, found \"{}\"", option, text);
  }
  constexpr int64_t kMost = int64_t{1} << 30;
  if (value < least || value > (kMost >> shift)) {
    return fail("{}: expected {} to {}, found {}", option, least, kMost, text);
  }
  return value << shift;
}

// The usual sizes of issue-sized questions: a reply alone and with others; short and long prompts.
std::vector<int64_t> usual_tokens(Phase phase, int64_t block) {
  switch (phase) {
    case Phase::decode:
      return {1, 2, 4, 8, 16};
    case Phase::prefill:
      return {32, 128, 512, 2048};
    case Phase::draft:
      return {1, 8};
    case Phase::verify:
      return {1 + block};
    case Phase::shortcut:
      return {512, 2048};
  }
  return {};
}

int64_t swept_tokens(Phase phase, int64_t block) {
  if (phase == Phase::verify) return 1 + block;
  return phase == Phase::prefill || phase == Phase::shortcut ? 512 : 1;
}

const std::vector<int64_t>& usual_contexts() {
  static const std::vector<int64_t> contexts{0, 4096, 32768, 131072, 1048576};
  return contexts;
}

bool needs_drafts(Phase phase) { return phase == Phase::draft || phase == Phase::verify; }

void add_steps(const StepChoice& choice, Phase phase, int64_t block, std::vector<StepSize>& steps) {
  const auto& contexts = choice.contexts.empty() ? usual_contexts() : choice.contexts;
  const auto tokens = choice.tokens.empty() ? usual_tokens(phase, block) : choice.tokens;
  const bool chosen = !choice.contexts.empty() || !choice.tokens.empty();
  // Drafts and the shortcut need no sweep of their own: what grows with the context is in decode
  // and prefill.
  const bool swept = phase == Phase::decode || phase == Phase::prefill;
  for (size_t i = 0; i < contexts.size(); ++i) {
    for (int64_t count : tokens) {
      if (phase == Phase::verify && count < 2) continue;  // an anchor alone is decode
      const bool wanted = chosen || i == 0 || (swept && count == swept_tokens(phase, block));
      if (wanted) steps.push_back({phase, count, contexts[i]});
    }
  }
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::decode:
      return "decode";
    case Phase::prefill:
      return "prefill";
    case Phase::draft:
      return "draft";
    case Phase::verify:
      return "verify";
    case Phase::shortcut:
      return "shortcut";
  }
  return "unknown";
}

std::string StepSize::text(bool with_context) const {
  const std::string start = fmt::format("{}/tokens{}", name_of(phase), tokens);
  return with_context ? start + "/ctx" + short_size(context) : start;
}

std::string short_size(int64_t size) {
  constexpr int64_t kKilo = 1 << 10, kMega = 1 << 20;
  if (size > 0 && size % kMega == 0) return fmt::format("{}M", size / kMega);
  if (size > 0 && size % kKilo == 0) return fmt::format("{}K", size / kKilo);
  return std::to_string(size);
}

Result<std::vector<int64_t>> parse_sizes(std::string_view option, std::string_view text,
                                         int64_t least) {
  std::vector<int64_t> sizes;
  if (text.empty()) return sizes;
  for (std::string_view part : split(text, ',')) {
    CACHALOT_TRY(const int64_t size, parse_size(option, part, least));
    sizes.push_back(size);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Result<std::vector<Phase>> parse_phases(std::string_view option, std::string_view text) {
  std::vector<Phase> phases;
  if (text.empty()) return phases;
  for (std::string_view part : split(text, ',')) {
    const auto found =
        std::ranges::find_if(kAllPhases, [&](Phase p) { return name_of(p) == part; });
    if (found == std::end(kAllPhases)) {
      return fail("{}: expected decode, prefill, draft, verify or shortcut, found \"{}\"", option,
                  part);
    }
    phases.push_back(*found);
  }
  return phases;
}

std::vector<StepSize> steps_to_run(const StepChoice& choice, int64_t block) {
  std::vector<StepSize> steps;
  for (Phase phase : kAllPhases) {
    const bool chosen =
        choice.phases.empty() || std::ranges::find(choice.phases, phase) != choice.phases.end();
    if (chosen && !(needs_drafts(phase) && block == 0)) add_steps(choice, phase, block, steps);
  }
  return steps;
}

std::vector<StepSize> gpu_steps_to_run(const StepChoice& choice, int64_t block) {
  if (!choice.tokens.empty() || !choice.contexts.empty()) return steps_to_run(choice, block);
  std::vector<StepSize> steps{{Phase::decode, 1, 1024},   {Phase::decode, 1, 32768},
                              {Phase::decode, 64, 32768}, {Phase::prefill, 8192, 0},
                              {Phase::draft, 1, 1024},    {Phase::verify, 1 + block, 1024}};
  std::erase_if(steps, [&](const StepSize& step) {
    const bool chosen = choice.phases.empty() ||
                        std::ranges::find(choice.phases, step.phase) != choice.phases.end();
    return !chosen || (needs_drafts(step.phase) && block == 0);
  });
  return steps;
}

bool row_matches(const std::string& name, const std::string& filter) {
  if (filter.find_first_of("*?") == filter.npos) return name.find(filter) != name.npos;
  return ::fnmatch(filter.c_str(), name.c_str(), 0) == 0;
}

bool step_can_match(const StepSize& size, const std::string& filter) {
  // Parts after the first slash are phase, tokens and context, whatever the first part is.
  const auto parts = split(filter, '/');
  const std::vector<std::string> own{std::string(name_of(size.phase)),
                                     fmt::format("tokens{}", size.tokens)};
  const auto is_phase = [](std::string_view part) {
    return std::ranges::any_of(kAllPhases, [&](Phase p) { return name_of(p) == part; });
  };
  const size_t first = is_phase(parts.front()) ? 0 : 1;
  for (size_t i = first; i < parts.size() && i - first < own.size(); ++i) {
    std::string pattern(parts[i]);
    if (i + 1 == parts.size()) pattern += '*';  // the end of a part of a name
    if (::fnmatch(pattern.c_str(), own[i - first].c_str(), 0) != 0) return false;
  }
  return true;
}

std::string why_no_row(const StepChoice& choice, int64_t block, const std::string& filter) {
  if (block == 0 && !choice.phases.empty() && std::ranges::all_of(choice.phases, needs_drafts)) {
    return "--phases: draft and verify need a draft head, which reads the streams of late layers: "
           "more --layers, or all";
  }
  if (filter.empty()) {
    return "--phases, --tokens: no such step can run on this model (verify takes two tokens and "
           "more)";
  }
  return fmt::format("--filter: no row matches \"{}\"; without it bench shows them all", filter);
}

}  // namespace cachalot::bench
