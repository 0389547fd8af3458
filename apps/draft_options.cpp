#include "draft_options.h"

#include <charconv>

namespace cachalot {

void add_draft_option(CLI::App& command, std::string& drafts) {
  drafts = "auto";
  command
      .add_option("--drafts", drafts,
                  "Tokens drafted ahead: off, on (the model's block), auto (as many as pay) or a "
                  "number; the text stays the same")
      ->capture_default_str()
      ->group("Engine");
}

Result<DraftParameters> draft_parameters(const std::string& drafts, int64_t block) {
  if (drafts == "off") return DraftParameters{};
  if (drafts == "auto") return DraftParameters{.mode = DraftMode::automatic, .depth = 0};
  if (drafts == "on") {
    if (block == 0) return fail("--drafts on: this model has no draft head; use auto or off");
    return DraftParameters{.mode = DraftMode::fixed, .depth = block};
  }
  int64_t depth = 0;
  const auto [end, error] = std::from_chars(drafts.data(), drafts.data() + drafts.size(), depth);
  if (error != std::errc() || end != drafts.data() + drafts.size() || depth < 1 || depth > block) {
    return fail("--drafts: expected off, on, auto or a number from 1 to {}, found \"{}\"", block,
                drafts);
  }
  return DraftParameters{.mode = DraftMode::fixed, .depth = depth};
}

}  // namespace cachalot
