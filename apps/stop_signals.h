// SIGTERM and SIGINT, waited for instead of handled.
#pragma once

#include <chrono>

namespace cachalot {

// Blocks them for this thread and those it starts from now on. SIGPIPE is ignored: a client that
// hangs up, or a log nobody reads, ends no program.
void block_stop_signals();

// Whether one arrived within that time.
bool stop_signal_within(std::chrono::milliseconds wait);

}  // namespace cachalot
