// An engine of lengths and pages that computes nothing, for tests of those who manage them.
#pragma once

#include "engine/engine.h"

namespace cachalot::test {

class CountingEngine final : public Engine {
 public:
  static constexpr int64_t kPageTokens = 16, kPageBytes = 1000, kCopied = 100;

  explicit CountingEngine(int64_t pages) : pool_(std::make_shared<PagePool>(pages)) {
    options_.max_sequences = 4;
    options_.rollback = 8;
  }
  ~CountingEngine() override {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i].open) close_sequence(static_cast<int32_t>(i));
    }
  }

  const ModelConfig& config() const override { return config_; }
  const EngineOptions& options() const override { return options_; }
  std::string description() const override { return "counting"; }

  Result<int32_t> open_sequence() override {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i].open) continue;
      sequences_[i].open = true;
      return static_cast<int32_t>(i);
    }
    return fail("no sequence left");
  }
  void close_sequence(int32_t sequence) override {
    pool_->release(at(sequence).pages);
    at(sequence) = {};
  }
  int64_t length(int32_t sequence) const override { return at(sequence).progress.length; }
  Status truncate(int32_t sequence, int64_t length) override {
    Sequence& state = at(sequence);
    if (length < state.progress.written - options_.rollback) return fail("too far back");
    state.progress.length = state.progress.upper_length = length;
    resize(state);
    return {};
  }
  Result<std::shared_ptr<const SavedSequence>> save(int32_t sequence) override {
    const Sequence& state = at(sequence);
    const auto full = static_cast<size_t>(length(sequence) / kPageTokens);
    return std::make_shared<const SavedSequence>(state.progress, std::vector<std::byte>(kCopied),
                                                 pool_, std::span(state.pages).first(full));
  }
  Status restore(int32_t sequence, const SavedSequence& saved) override {
    Sequence& state = at(sequence);
    if (!state.open || !state.pages.empty()) return fail("not empty");
    if (saved.length() % kPageTokens != 0 && pool_->free() == 0) return fail("no page is free");
    pool_->share(saved.pages());
    state.pages.assign(saved.pages().begin(), saved.pages().end());
    state.progress = saved.progress();
    resize(state);
    return {};
  }
  PageUse pages() const override {
    return {
        .total = pool_->total(), .free = pool_->free(), .tokens = kPageTokens, .bytes = kPageBytes};
  }
  Result<StepResult> step(const StepRequest&) override { return fail("computes nothing"); }
  Result<DraftResult> draft(std::span<const DraftRequest>, Observer*) override {
    return fail("computes nothing");
  }

  void append(int32_t sequence, int64_t tokens) {
    Sequence& state = at(sequence);
    state.progress.length += tokens;
    state.progress.written = std::max(state.progress.written, state.progress.length);
    state.progress.upper_length = state.progress.length;
    resize(state);
  }
  void fall_behind(int32_t sequence, int64_t tokens) {
    at(sequence).progress.upper_length -= tokens;
  }

 private:
  struct Sequence {
    bool open = false;
    SequenceProgress progress;
    std::vector<int32_t> pages;
  };

  Sequence& at(int32_t sequence) { return sequences_[static_cast<size_t>(sequence)]; }
  const Sequence& at(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  void resize(Sequence& state) {
    const int64_t needed = (state.progress.length + kPageTokens - 1) / kPageTokens;
    while (std::ssize(state.pages) < needed) state.pages.push_back(pool_->take());
    while (std::ssize(state.pages) > needed) {
      pool_->release({&state.pages.back(), 1});
      state.pages.pop_back();
    }
  }

  ModelConfig config_;
  EngineOptions options_;
  std::shared_ptr<PagePool> pool_;
  std::vector<Sequence> sequences_ = std::vector<Sequence>(4);
};

}  // namespace cachalot::test
