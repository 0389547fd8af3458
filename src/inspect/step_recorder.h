// Records what a step does, operation by operation (inspect/live_trace.h).
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "inspect/live_trace.h"
#include "ops/watcher.h"

namespace cachalot {

class StepRecorder final : public OperationWatcher {
 public:
  explicit StepRecorder(const Explorer& explorer) : explorer_(explorer) {}

  // `step` gets what the operations from now on do; its `positions` are the rows that are kept, the
  // step's last ones. Lives until the next call.
  void start(StepTrace& step) { step_ = &step; }

  void enter(const PartScope& scope) override { scopes_.push_back(scope); }
  void leave() override { scopes_.pop_back(); }

  void after(const RouteArgs& args) override;
  void after(const IndexSelectArgs& args) override;
  void after(const EngramGatherArgs& args) override;
  void before(const EngramMixArgs& args) override;
  void after(const HyperCollapseArgs& args) override;
  void after(const SparseAttentionArgs& args) override;
  void ran(std::string_view operation, double seconds, const Cost& cost) override;

 private:
  int64_t layer() const;
  LayerTrace& layer_trace();
  int64_t rows_left_out(int64_t rows) const;
  template <class T>
  TraceTable<std::remove_const_t<T>> last_rows(View<T> view) const;

  const Explorer& explorer_;
  std::vector<PartScope> scopes_;
  StepTrace* step_ = nullptr;
};

}  // namespace cachalot
