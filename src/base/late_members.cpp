#include "base/late_members.h"

#include <algorithm>

namespace cachalot {

void LateMembers::add(double slept) {
  const double counted = std::min(slept, kLongestWait);
  start_ += slept - counted;
  slept_ += counted;
  ++runs_;
  const double now = clock_(), seconds = now - start_;
  if (runs_ < least_runs_ || seconds < kLeastSeconds) return;
  if (slept_ * members_ > seconds * (members_ - 1)) {
    away_until_ = now + std::min(kTimesAway * seconds, kLongestAway);
  }
  look_anew(now);
}

bool LateMembers::still_away() {
  const double now = clock_();
  if (now < away_until_) return true;
  away_until_ = 0;
  look_anew(now);
  return false;
}

}  // namespace cachalot
