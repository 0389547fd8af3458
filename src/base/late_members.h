// LateMembers: whether the caller of a team is faster without it, because others use the CPUs.
#pragma once

#include "base/clock.h"

namespace cachalot {

// Where other programs take the CPUs of some members the rest falls asleep at every meeting, loses
// its own CPU for a slice of the scheduler's and comes late in turn: a step of a small model then
// takes hundreds of slices. Of n members one does an n-th of the work, so where it spends more than
// the rest of the time asleep it is faster alone. It stays so for ten times as long as that took to
// see, and looks again.
class LateMembers {
 public:
  // One wait may be long for once, as where a host takes a CPU away, so it takes kRuns of them, or
  // as many as are given: of more members than CPUs some are always late.
  static constexpr int kRuns = 16;

  explicit LateMembers(int members, int runs = kRuns, SecondsClock clock = wall_seconds)
      : members_(members), least_runs_(runs), clock_(clock), start_(clock()) {}

  // Of a run in which the caller slept so long.
  void add(double slept);

  // Whether the caller shall do the next run alone.
  bool keep_away() { return away_until_ > 0 && still_away(); }

 private:
  static constexpr double kLeastSeconds = 0.02;
  static constexpr double kTimesAway = 10;
  // A process that was stopped for minutes has found out nothing.
  static constexpr double kLongestWait = 0.5, kLongestAway = 2;

  bool still_away();
  void look_anew(double now) {
    start_ = now;
    slept_ = 0;
    runs_ = 0;
  }

  const int members_, least_runs_;
  const SecondsClock clock_;
  double start_, slept_ = 0, away_until_ = 0;
  int runs_ = 0;
};

}  // namespace cachalot
