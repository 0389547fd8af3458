#include "draft_options.h"

#include <charconv>

namespace cachalot {

void add_draft_options(CLI::App& command, DraftOptions& options) {
  command
      .add_option("--drafts", options.drafts,
                  "Tokens drafted ahead: off, on (the model's block), auto (as many as pay) or a "
                  "number")
      ->capture_default_str()
      ->group("Engine");
  command
      .add_option("--draft-method", options.method,
                  "greedy: the text is the same as without drafts; probabilistic: drawn, accepted "
                  "by the ratio of probabilities, another text from the same distribution")
      ->check(CLI::IsMember({"greedy", "probabilistic"}))
      ->capture_default_str()
      ->group("Engine");
}

Result<DraftParameters> draft_parameters(const DraftOptions& options, int64_t block) {
  const std::string& drafts = options.drafts;
  DraftParameters parameters;
  if (options.method == "probabilistic") parameters.method = DraftMethod::probabilistic;
  if (drafts == "off") return parameters;
  if (drafts == "auto") {
    parameters.mode = DraftMode::automatic;
    return parameters;
  }
  parameters.mode = DraftMode::fixed;
  parameters.depth = block;
  if (drafts == "on") {
    if (block == 0) return fail("--drafts on: this model has no draft head; use auto or off");
    return parameters;
  }
  int64_t depth = 0;
  const auto [end, error] = std::from_chars(drafts.data(), drafts.data() + drafts.size(), depth);
  if (error != std::errc() || end != drafts.data() + drafts.size() || depth < 1 || depth > block) {
    return fail("--drafts: expected off, on, auto or a number from 1 to {}, found \"{}\"", block,
                drafts);
  }
  parameters.depth = depth;
  return parameters;
}

}  // namespace cachalot
