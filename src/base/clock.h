// Clocks that measurements choose from, in seconds from some moment on.
#pragma once

#include <time.h>

namespace cachalot {

using SecondsClock = double (*)();

// Of the world.
inline double wall_seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Of the calling thread, while a processor runs it: what others on the machine take does not count.
inline double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace cachalot
