// One sequence of an engine, step by step. What goes wrong is thrown.
#pragma once

#include <span>
#include <stdexcept>
#include <vector>

#include "engine/engine.h"

namespace cachalot::test {

using Ids = std::vector<int32_t>;

class Walker {
 public:
  explicit Walker(Engine& engine) : engine_(engine), sequence_(take(engine.open_sequence())) {}
  Walker(Engine& engine, const SavedSequence& saved) : Walker(engine) {
    check(engine.restore(sequence_, saved));
  }
  ~Walker() { engine_.close_sequence(sequence_); }
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;

  int32_t sequence() const { return sequence_; }
  void clear() { check(engine_.truncate(sequence_, 0)); }

  // Logits of the last token.
  std::vector<float> append(std::span<const int32_t> tokens, bool draft_taps) {
    const auto most = static_cast<size_t>(engine_.options().max_step_tokens);
    std::vector<float> logits;
    for (; !tokens.empty(); tokens = tokens.subspan(std::min(most, tokens.size()))) {
      logits = step(tokens.first(std::min(most, tokens.size())), LogitsOf::last, StepPart::whole,
                    draft_taps);
    }
    return logits;
  }
  Status try_append(std::span<const int32_t> tokens, bool draft_taps) {
    const SequenceStep part{.sequence = sequence_, .tokens = tokens};
    const auto result = engine_.step({.sequences = {&part, 1}, .draft_taps = draft_taps});
    return result ? Status() : Status(fail(result.error()));
  }
  void lower(std::span<const int32_t> tokens) {
    step(tokens, LogitsOf::none, StepPart::lower, false);
  }
  std::vector<float> upper(std::span<const int32_t> tokens) {
    return step(tokens, LogitsOf::last, StepPart::upper, true);
  }

  // What there is to be seen of a sequence: logits of every one of the next tokens, appended, and
  // what the draft head then makes of its windows.
  struct Outcome {
    std::vector<float> logits, draft_logits, confidence;

    bool operator==(const Outcome&) const = default;
  };
  Outcome outcome(std::span<const int32_t> tokens) {
    Outcome outcome{.logits = step(tokens, LogitsOf::all, StepPart::whole, true),
                    .draft_logits = {},
                    .confidence = {}};
    const DraftRequest request{
        .sequence = sequence_, .anchor = tokens.front(), .show_logits = true};
    const DraftResult drafts = take(engine_.draft({&request, 1}));
    const auto copy = [](View<const float> view) {
      return std::vector<float>(view.data, view.data + view.elements());
    };
    outcome.draft_logits = copy(drafts.logits);
    outcome.confidence = copy(drafts.confidence);
    return outcome;
  }

 private:
  static void check(const Status& status) {
    if (!status) throw std::runtime_error(status.error().message);
  }
  template <class T>
  static T take(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }
  std::vector<float> step(std::span<const int32_t> tokens, LogitsOf logits, StepPart part,
                          bool draft_taps) {
    const SequenceStep step{.sequence = sequence_, .tokens = tokens, .logits = logits};
    const StepResult result =
        take(engine_.step({.sequences = {&step, 1}, .draft_taps = draft_taps, .part = part}));
    return {result.logits.data, result.logits.data + result.logits.elements()};
  }

  Engine& engine_;
  int32_t sequence_;
};

}  // namespace cachalot::test
