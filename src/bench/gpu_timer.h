// Times of recorded calls on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/queue.h"
#include "backend/cuda/stopwatch.h"
#include "bench/recorded_step.h"

namespace cachalot::bench {

using CallList = std::vector<const RecordedCall*>;

class GpuTimer {
 public:
  // The calls have run on the queue before, so that starting them allocates nothing.
  explicit GpuTimer(cuda::Queue& queue);

  // One graph of the calls in their order, started once a time; the median of `replays` after one
  // that is not counted.
  double graph_seconds(const CallList& calls, int replays);
  // Of calls that are not all of a step, without what starting a graph takes: so many rounds of
  // them in it that it takes a millisecond.
  double round_seconds(const CallList& calls, bool cold, int replays);
  // Without a graph: of each call, between two marks.
  std::vector<double> call_seconds(const CallList& calls);

 private:
  enum class As { step, alone, alone_and_cold };
  double replay(const CallList& calls, As as, int rounds, int replays);

  cuda::Queue& queue_;
  std::unique_ptr<void, ReleaseTo> other_memory_;
  std::vector<cuda::TimePoint> marks_;
};

}  // namespace cachalot::bench
