// timed::Queue<Q>: runs every operation on Q and notes how long it took and what it moved and
// computed, or shows it to a watcher. A queue that only starts operations is not timed by this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ops/part.h"
#include "ops/queue.h"
#include "ops/run_cost.h"
#include "ops/watcher.h"

namespace cachalot::timed {

struct Record {
  std::string_view operation;
  std::string_view variant;      // "use", "window": ways an operation works; empty for most
  const void* weight = nullptr;  // the data of the weight it reads, to name it by
  size_t range = 0;              // the range it lies in, an index
  double seconds = 0;
  Cost cost;
  std::string shapes;                 // "x [5, 512], y [5, 64]", where asked for
  std::vector<PartScope> parts = {};  // it lies in, from the outermost on
};

// From one label to the next.
struct Range {
  std::string label;
  double seconds = 0;
};

// Which of an operation's ways of working the arguments ask for.
template <class Args>
std::string_view variant_of(const Args&) {
  return {};
}
inline std::string_view variant_of(const HyperCollapseArgs& args) {
  return args.fn.absent() ? "last" : "";
}
inline std::string_view variant_of(const SparseAttentionArgs& args) {
  if (args.block > 0) return "block";
  return args.chosen.present() ? "chosen" : "window";
}
inline std::string_view variant_of(const IndexSelectArgs& args) {
  if (args.candidate_use == CandidateUse::build) return "build";
  return args.candidate_use == CandidateUse::use ? "use" : "";
}
inline std::string_view variant_of(const PrepareQueryArgs& args) {
  return args.q.absent() ? "rows" : "";
}
inline std::string_view variant_of(const CompressKvArgs& args) {
  return args.ratio > 1 ? "pooled" : "each";
}

inline const void* address_of(const DenseMatrix& weight) {
  return weight.quantized() ? static_cast<const void*>(weight.codes.data) : weight.values.data;
}
template <class T>
const void* address_of(const View<T>& weight) {
  return weight.data;
}

template <class Q>
class Queue {
 public:
  // `inner` must outlive this.
  explicit Queue(Q& inner, SecondsClock clock = wall_seconds) : inner_(inner), clock_(clock) {}

  Arena& arena() { return inner_.arena(); }
  void label(std::string_view name) {
    finish();
    ranges_.push_back({std::string(name), 0});
    inner_.label(name);
  }

  // From now on nothing is noted; `watcher` sees the operations, nullptr: nobody does.
  void watch(OperationWatcher* watcher) {
    notes_ = false;
    watcher_ = watcher;
  }

  void enter(const PartScope& scope) {
    if (watcher_) watcher_->enter(scope);
    if (notes_) parts_.push_back(scope);
  }
  void leave() {
    if (watcher_) watcher_->leave();
    if (notes_) parts_.pop_back();
  }

  // Ends the last range. Without the time it took to note things.
  void finish() {
    const double now = seconds();
    if (!ranges_.empty()) ranges_.back().seconds = now - mark_;
    mark_ = now;
  }
  // with_shapes: note the arguments' shapes too, which takes longer.
  void clear(bool with_shapes = false) {
    with_shapes_ = with_shapes;
    records_.clear();
    ranges_.clear();
    mark_ = seconds();
  }
  const std::vector<Record>& records() const { return records_; }
  const std::vector<Range>& ranges() const { return ranges_; }

  // run_inner(Q&, const Args&) is `operation`.
  template <class Args, class RunInner>
  void run(std::string_view operation, const Args& args, RunInner run_inner) {
    if (!notes_) return show(operation, args, run_inner);
    const double start = seconds();
    run_inner(inner_, args);
    const double end = seconds();
    Record record{.operation = operation,
                  .variant = variant_of(args),
                  .range = ranges_.empty() ? 0 : ranges_.size() - 1,
                  .seconds = end - start,
                  .cost = run_cost_of(args),
                  .parts = parts_};
    if (with_shapes_) record.shapes = shapes_of(args);
    if constexpr (requires { address_of(args.weight); }) record.weight = address_of(args.weight);
    records_.push_back(std::move(record));
    aside_ += seconds() - end;
  }

 private:
  template <class Args, class RunInner>
  void show(std::string_view operation, const Args& args, RunInner run_inner) {
    if (watcher_ == nullptr) return run_inner(inner_, args);
    watcher_->before(args);
    const double start = clock_();
    run_inner(inner_, args);
    const double end = clock_();
    watcher_->after(args);
    watcher_->ran(operation, end - start, run_cost_of(args));
  }

  double seconds() const { return clock_() - aside_; }

  Q& inner_;
  SecondsClock clock_;
  double aside_ = 0, mark_ = 0;  // time spent noting; where the last range begins
  bool with_shapes_ = false, notes_ = true;
  OperationWatcher* watcher_ = nullptr;
  std::vector<Record> records_;
  std::vector<Range> ranges_;
  std::vector<PartScope> parts_;
};

#define CACHALOT_TIMED(function, Args)                                               \
  template <class Q>                                                                 \
  void function(Queue<Q>& queue, const Args& args) {                                 \
    queue.run(#function, args, [](Q& on, const Args& with) { function(on, with); }); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_TIMED)
#undef CACHALOT_TIMED

}  // namespace cachalot::timed
