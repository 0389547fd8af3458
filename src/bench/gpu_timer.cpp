#include "bench/gpu_timer.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/limits.h"
#include "base/check.h"

namespace cachalot::bench {
namespace {

constexpr int64_t kOtherBytes = int64_t{192} << 20;  // Hopper's L2 caches hold 50 to 60 MB

}  // namespace

GpuTimer::GpuTimer(cuda::Queue& queue)
    : queue_(queue),
      other_memory_(cuda::device_memory().allocate(kOtherBytes), {&cuda::device_memory()}) {
  CACHALOT_CHECK(other_memory_ != nullptr, "{} bytes on the device", kOtherBytes);
}

double GpuTimer::replay(const CallList& calls, As as, int rounds, int replays) {
  queue_.begin_capture();
  for (int round = 0; round < rounds; ++round) {
    if (as == As::alone_and_cold) cuda::read_memory(queue_, other_memory_.get(), kOtherBytes);
    for (const RecordedCall* call : calls) {
      (as == As::step ? call->start : call->start_alone)(queue_);
    }
  }
  const auto graph = queue_.end_capture();
  cuda::TimePoint before, after;
  std::vector<double> seconds;
  for (int i = 0; i <= replays; ++i) {
    before.mark(queue_);
    queue_.launch(*graph);
    after.mark(queue_);
    const double each = after.seconds_since(before);
    if (i > 0) seconds.push_back(each);
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

double GpuTimer::graph_seconds(const CallList& calls, int replays) {
  return replay(calls, As::step, 1, replays);
}

double GpuTimer::round_seconds(const CallList& calls, bool cold, int replays) {
  constexpr double kLeastSeconds = 1e-3, kMostKernels = 512;
  const As as = cold ? As::alone_and_cold : As::alone;
  const double once = replay(calls, as, 1, 1);
  const double most = std::max(1.0, kMostKernels / static_cast<double>(calls.size()));
  const auto rounds = static_cast<int>(std::clamp(std::ceil(kLeastSeconds / once), 1.0, most));
  const double all = replay(calls, as, rounds, replays);
  return (cold ? all - replay({}, as, rounds, replays) : all) / rounds;
}

std::vector<double> GpuTimer::call_seconds(const CallList& calls) {
  while (marks_.size() <= calls.size()) marks_.emplace_back();
  marks_[0].mark(queue_);
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i]->start(queue_);
    marks_[i + 1].mark(queue_);
  }
  std::vector<double> seconds;
  for (size_t i = 0; i < calls.size(); ++i) {
    seconds.push_back(marks_[i + 1].seconds_since(marks_[i]));
  }
  return seconds;
}

}  // namespace cachalot::bench
