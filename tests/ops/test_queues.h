// Runs a test body on every queue that computes: the reference, and the CPU queue under each
// instruction set this machine has, on 1 and on 3 threads.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/queue.h"
#include "ops/reference/queue.h"

namespace cachalot {

inline constexpr size_t kTestArenaBytes = size_t{1} << 24;

// body(cpu::Queue&)
template <class Body>
void on_cpu_queues(Body&& body) {
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("cpu, {}, {} threads", name_of(isa), threads));
      ThreadTeam team(threads);
      cpu::Queue queue(team, isa, Arena(kTestArenaBytes));
      body(queue);
    }
  }
}

// body(auto& queue)
template <class Body>
void on_all_queues(Body&& body) {
  {
    SCOPED_TRACE("reference");
    reference::Queue queue{Arena(kTestArenaBytes)};
    body(queue);
  }
  on_cpu_queues(body);
}

}  // namespace cachalot
