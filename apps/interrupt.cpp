#include "interrupt.h"

#include <csignal>

namespace cachalot {
namespace {

// A signal handler can reach nothing but a global; this is the only one.
volatile std::sig_atomic_t interrupt_seen = 0;

void handle_interrupt(int) {
  interrupt_seen = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupt_seen = 0;
  std::signal(SIGINT, handle_interrupt);
}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, SIG_DFL); }

bool InterruptGuard::interrupted() const { return interrupt_seen != 0; }

}  // namespace cachalot
