#include "stop_signals.h"

#include <csignal>

namespace cachalot {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stop_signal_within(std::chrono::milliseconds wait) {
  const sigset_t set = stop_signals();
  const auto milliseconds = wait.count();
  const timespec time{milliseconds / 1000, (milliseconds % 1000) * 1000000};
  return sigtimedwait(&set, nullptr, &time) > 0;
}

}  // namespace cachalot
