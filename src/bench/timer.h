// Times of work that is repeated.
#pragma once

#include <algorithm>
#include <chrono>

namespace cachalot::bench {

class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The least seconds of at least `rounds` runs that take at least `seconds` in all: others on the
// machine only ever make a run slower.
template <class Work>
double best_of(int rounds, double seconds, Work&& work) {
  const Timer all;
  double best = 1e9;
  for (int round = 0; round < rounds || all.seconds() < seconds; ++round) {
    const Timer one;
    work();
    best = std::min(best, one.seconds());
  }
  return best;
}

}  // namespace cachalot::bench
