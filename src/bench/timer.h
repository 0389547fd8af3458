// Times of work that is repeated.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace cachalot::bench {

class Timer {
 public:
  explicit Timer(SecondsClock clock = wall_seconds) : clock_(clock), start_(clock()) {}

  double seconds() const { return clock_() - start_; }

 private:
  SecondsClock clock_;
  double start_;
};

// The least seconds of at least `rounds` runs that take at least `seconds` in all: others on the
// machine only ever make a run slower.
template <class Work>
double best_of(SecondsClock clock, int rounds, double seconds, Work&& work) {
  const Timer all;
  double best = 1e9;
  for (int round = 0; round < rounds || all.seconds() < seconds; ++round) {
    const Timer one(clock);
    work();
    best = std::min(best, one.seconds());
  }
  return best;
}

}  // namespace cachalot::bench
