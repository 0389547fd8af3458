// Ctrl-C while the model answers or a file is written.
#pragma once

namespace cachalot {

inline constexpr int kInterruptedExit = 130;  // as shells report SIGINT

// While one lives, SIGINT only raises a flag; a second SIGINT before the flag is looked after ends
// the program as usual. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
};

}  // namespace cachalot
