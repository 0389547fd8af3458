// Without CUDA there is nothing to measure.
#include "backend/cuda/limits.h"

#include "backend/cuda/stopwatch.h"
#include "base/check.h"

namespace cachalot::cuda {

DeviceLimits measure_limits(Queue&, int64_t) { CACHALOT_CHECK(false, "no CUDA"); }

void read_memory(Queue&, const void*, int64_t, int) {}

TimePoint::TimePoint() = default;
TimePoint::~TimePoint() { CACHALOT_CHECK(event_ == nullptr, "no CUDA"); }
void TimePoint::mark(Queue&) {}
double TimePoint::seconds_since(const TimePoint&) const { return 0; }

}  // namespace cachalot::cuda
