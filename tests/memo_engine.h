// An engine for many answers to one prompt: every row of logits and every draft is computed once.
#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "engine/engine.h"

namespace cachalot::test {

// Holds one sequence: the prompt, and whatever tokens were appended since. What the inner engine
// computes depends on the tokens alone (tests/invariance_test.cpp), so it may be kept.
class MemoEngine final : public Engine {
 public:
  // `inner` can be cut back by more tokens than are ever appended.
  MemoEngine(Engine& inner, std::vector<int32_t> prompt)
      : inner_(inner), prompt_(std::move(prompt)), sequence_(*inner.open_sequence()) {
    const SequenceStep part{.sequence = sequence_, .tokens = prompt_, .logits = LogitsOf::none};
    check(inner_.step({.sequences = {&part, 1}, .draft_taps = true}));
  }
  ~MemoEngine() override { inner_.close_sequence(sequence_); }

  const ModelConfig& config() const override { return inner_.config(); }
  const EngineOptions& options() const override { return inner_.options(); }
  std::string description() const override { return inner_.description(); }
  Result<int32_t> open_sequence() override { return fail("there is one sequence, 0"); }
  void close_sequence(int32_t) override {}
  int64_t length(int32_t) const override { return std::ssize(prompt_) + std::ssize(appended_); }
  Status truncate(int32_t, int64_t length) override {
    appended_.resize(static_cast<size_t>(length - std::ssize(prompt_)));
    return {};
  }
  int64_t prompt_tokens() const { return std::ssize(prompt_); }

  Result<StepResult> step(const StepRequest& request) override {
    const auto tokens = request.sequences.front().tokens;
    std::vector<int32_t> path = appended_;
    path.insert(path.end(), tokens.begin(), tokens.end());
    if (!rows_.contains(path)) compute_rows(path);
    logits_.clear();
    best_.clear();
    for (size_t count = appended_.size() + 1; count <= path.size(); ++count) {
      const auto& row = rows_.at({path.begin(), path.begin() + static_cast<ptrdiff_t>(count)});
      logits_.insert(logits_.end(), row.begin(), row.end());
      best_.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
    }
    appended_ = std::move(path);
    return StepResult{.logits = {logits_.data(), {std::ssize(tokens), config().vocab_size}},
                      .best = {best_.data(), {std::ssize(tokens)}},
                      .taps = {}};
  }

  Result<DraftResult> draft(std::span<const DraftRequest> requests, Observer*) override {
    const DraftRequest& request = requests.front();
    const int64_t block = config().dspark_block_size;
    std::vector<int32_t> path = appended_;
    path.push_back(request.anchor);
    drafts_.clear();
    confidence_.clear();
    for (int64_t place = 0; place < block; ++place) {
      if (!links_.contains(path)) compute_links(path);
      const Link& link = links_.at(path);
      drafts_.push_back(request.choose ? request.choose(place, link.logits, link.best) : link.best);
      confidence_.push_back(link.confidence);
      path.push_back(drafts_.back());
    }
    return DraftResult{.tokens = {drafts_.data(), {1, block}},
                       .logits = {},
                       .confidence = {confidence_.data(), {block}}};
  }

 private:
  // One link of the draft chain: what follows the appended tokens, the anchor and the drafts so
  // far.
  struct Link {
    std::vector<float> logits;
    int32_t best = 0;
    float confidence = 0;
  };

  template <class T>
  static T check(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }

  StepResult run_inner(std::span<const int32_t> tokens) {
    const SequenceStep part{.sequence = sequence_, .tokens = tokens, .logits = LogitsOf::all};
    return check(inner_.step({.sequences = {&part, 1}, .draft_taps = true}));
  }

  void restore_inner() {
    if (!inner_.truncate(sequence_, std::ssize(prompt_))) throw std::runtime_error("rollback");
  }

  void compute_rows(const std::vector<int32_t>& path) {
    const StepResult result = run_inner(path);
    for (size_t row = 0; row < path.size(); ++row) {
      const float* logits = result.logits.row(static_cast<int64_t>(row));
      rows_.try_emplace({path.begin(), path.begin() + static_cast<ptrdiff_t>(row) + 1},
                        std::vector<float>(logits, logits + config().vocab_size));
    }
    restore_inner();
  }

  void compute_links(const std::vector<int32_t>& path) {
    if (!appended_.empty()) run_inner(appended_);
    std::vector<int32_t> walked = {path.begin(),
                                   path.begin() + static_cast<ptrdiff_t>(appended_.size()) + 1};
    const DraftRequest request{
        .sequence = sequence_,
        .anchor = walked.back(),
        .choose = [&](int64_t, std::span<const float> logits, int32_t best) {
          links_.try_emplace(walked, Link{{logits.begin(), logits.end()}, best, 0});
          walked.push_back(walked.size() < path.size() ? path[walked.size()] : best);
          return walked.back();
        }};
    const DraftResult result = check(inner_.draft({&request, 1}));
    for (int64_t place = 0; place < result.confidence.elements(); ++place) {
      const auto known = static_cast<ptrdiff_t>(appended_.size()) + 1 + place;
      links_.at({walked.begin(), walked.begin() + known}).confidence =
          result.confidence.data[place];
    }
    restore_inner();
  }

  Engine& inner_;
  std::vector<int32_t> prompt_;
  int32_t sequence_;
  std::vector<int32_t> appended_;
  std::map<std::vector<int32_t>, std::vector<float>> rows_;
  std::map<std::vector<int32_t>, Link> links_;
  std::vector<float> logits_, confidence_;
  std::vector<int32_t> best_, drafts_;
};

}  // namespace cachalot::test
