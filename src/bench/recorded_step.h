// A step as a list of calls that can be started on a GPU again and again, all or some of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/queue.h"
#include "backend/meta/queue.h"
#include "ops/timed.h"
#include "ops/watcher.h"

namespace cachalot::bench {

struct RecordedCall {
  timed::Record record;  // with shapes; time and cost are still to be measured
  std::string label;     // the profiling range it lies in: "layer 12"
  std::function<void(cuda::Queue&)> start;
  // What it reads that later operations of the step overwrite is kept for start_alone(): which
  // entries were chosen. To be called when all before it has run.
  std::function<void()> keep_inputs;
  std::function<void(cuda::Queue&)> start_alone;
  // Of its last run, which is over: what depends on data is looked up in copies.
  std::function<Cost()> cost;
};

// Notes the operations that a meta::Queue is given.
class CallRecorder final : public OperationWatcher {
 public:
#define CACHALOT_DECLARE_BEFORE(function, Args) void before(const Args& args) override;
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_BEFORE)
#undef CACHALOT_DECLARE_BEFORE

  // With the labels of the queue that was watched; its arena outlives them.
  std::vector<RecordedCall> take(const meta::Queue& queue);

 private:
  template <class Args>
  void note(std::string_view operation, const Args& args, void (*run)(cuda::Queue&, const Args&));

  std::vector<RecordedCall> calls_;
};

}  // namespace cachalot::bench
