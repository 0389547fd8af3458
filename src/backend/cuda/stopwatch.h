// Times on the device's own clock.
#pragma once

#include <memory>

#include "backend/cuda/queue.h"

struct CUevent_st;

namespace cachalot::cuda {

// A point in what a queue was given to do.
class TimePoint {
 public:
  TimePoint();
  ~TimePoint();
  TimePoint(TimePoint&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  TimePoint& operator=(TimePoint&&) = delete;

  void mark(Queue& queue);
  // Waits until this point has been reached. Both were marked.
  double seconds_since(const TimePoint& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace cachalot::cuda
