#include "backend/cuda/launch.h"
#include "backend/cuda/stopwatch.h"

namespace cachalot::cuda {

TimePoint::TimePoint() { check(cudaEventCreate(&event_), "making an event"); }

TimePoint::~TimePoint() {
  if (event_ != nullptr) check(cudaEventDestroy(event_), "ending an event");
}

void TimePoint::mark(Queue& queue) {
  check(cudaEventRecord(event_, queue.stream()), "marking a time");
}

double TimePoint::seconds_since(const TimePoint& earlier) const {
  check(cudaEventSynchronize(event_), "running kernels");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "reading a time");
  return milliseconds * 1e-3;
}

}  // namespace cachalot::cuda
