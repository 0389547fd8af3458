// An engine that does what another does; what a derived one does differently it overrides. It
// drafts and steps in two calls, so that what a derived one makes of either counts.
#pragma once

#include "engine/engine.h"

namespace cachalot {

class ForwardingEngine : public Engine {
 public:
  // `inner` outlives this.
  explicit ForwardingEngine(Engine& inner) : inner_(inner) {}

  const ModelConfig& config() const override { return inner_.config(); }
  const EngineOptions& options() const override { return inner_.options(); }
  std::string description() const override { return inner_.description(); }
  std::string arithmetic() const override { return inner_.arithmetic(); }

  Result<int32_t> open_sequence() override { return inner_.open_sequence(); }
  void close_sequence(int32_t sequence) override { inner_.close_sequence(sequence); }
  int64_t length(int32_t sequence) const override { return inner_.length(sequence); }
  Status truncate(int32_t sequence, int64_t length) override {
    return inner_.truncate(sequence, length);
  }

  Result<std::shared_ptr<const SavedSequence>> save(int32_t sequence) override {
    return inner_.save(sequence);
  }
  Status restore(int32_t sequence, const SavedSequence& saved) override {
    return inner_.restore(sequence, saved);
  }
  void read_page(const SavedSequence& saved, int64_t index,
                 std::span<std::byte> to) const override {
    inner_.read_page(saved, index, to);
  }
  Result<std::shared_ptr<const SavedSequence>> load(const SequenceProgress& progress,
                                                    std::vector<std::byte> copied,
                                                    const SavedSequence* begin, int64_t shared,
                                                    const FillPage& fill_page) override {
    return inner_.load(progress, std::move(copied), begin, shared, fill_page);
  }
  PageUse pages() const override { return inner_.pages(); }
  int64_t pages_for(int32_t sequence, int64_t tokens) const override {
    return inner_.pages_for(sequence, tokens);
  }

  Result<StepResult> step(const StepRequest& request) override { return inner_.step(request); }
  Result<DraftResult> draft(std::span<const DraftRequest> requests, Observer* observer) override {
    return inner_.draft(requests, observer);
  }
  void for_each(int64_t count, const std::function<void(int64_t i)>& work) override {
    inner_.for_each(count, work);
  }
  void watch(OperationWatcher* watcher) override { inner_.watch(watcher); }
  std::string first_departure() const override { return inner_.first_departure(); }
  const WeightStore* storage() const override { return inner_.storage(); }

 protected:
  Engine& inner() { return inner_; }
  const Engine& inner() const { return inner_; }

 private:
  Engine& inner_;
};

}  // namespace cachalot
