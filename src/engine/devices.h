// What a local engine computes on: a queue with what must outlive it, and the way of a step's
// inputs and outputs to and from it.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/queue.h"
#include "base/clock.h"
#include "base/thread_team.h"
#include "engine/wanted_results.h"
#include "model/observer.h"
#include "model/step.h"
#include "ops/checked.h"
#include "ops/reference/queue.h"
#include "ops/timed.h"
#include "storage/weight_store.h"
#include "tensor/memory.h"

namespace cachalot {

// A device that computes where the host reads and writes, and is done when a step returns.
struct InPlaceDevice {
  // Idle between steps; nullptr: it has none.
  ThreadTeam* threads() { return nullptr; }
  StepInputs bring(const StepInputs& inputs, const StepShape& /*shape*/) { return inputs; }
  Observer* shown_to(Observer* observer) { return observer; }
  // compute() -> what was computed. `repeatable`: it would start the same operations for every step
  // of this shape.
  template <class Compute>
  auto run(const StepShape& /*shape*/, bool /*repeatable*/, Compute compute) {
    return compute();
  }
  template <class Outputs>
  Outputs fetch(const Outputs& outputs, const WantedResults& /*wanted*/) {
    return outputs;
  }

  // Where results lie that outlast the next run, and the way there.
  const MemorySpace& kept_memory() const { return host_memory(); }
  void keep(void* kept, const void* result, size_t bytes) {
    std::memcpy(kept, result, bytes);
    kept_at = wall_seconds();
  }
  // When everything kept was there; waits for it.
  double time_of_keeping() const { return kept_at; }

  double kept_at = 0;
};

struct ReferenceDevice : InPlaceDevice {
  explicit ReferenceDevice(Arena arena) : queue(std::move(arena)) {}
  void use_store(WeightStore* store) {
    CACHALOT_CHECK(store == nullptr, "the reference reads weights in place");
  }

  reference::Queue queue;
};

struct CpuDevice : InPlaceDevice {
  CpuDevice(Arena arena, int threads, Isa isa)
      : team(threads), queue(team, isa, std::move(arena)) {}
  ThreadTeam* threads() { return &team; }
  void use_store(WeightStore* store) { queue.use_store(store); }

  ThreadTeam team;
  cpu::Queue queue;
};

struct CheckedDevice : InPlaceDevice {
  CheckedDevice(Arena arena, int threads, Isa isa)
      : cpu(std::move(arena), threads, isa), queue(cpu.queue) {}
  ThreadTeam* threads() { return cpu.threads(); }
  void use_store(WeightStore* store) { cpu.use_store(store); }

  CpuDevice cpu;
  checked::Queue<cpu::Queue> queue;
};

// Shows its operations to whoever wants to see them.
struct WatchedDevice : InPlaceDevice {
  WatchedDevice(Arena arena, int threads, Isa isa)
      : cpu(std::move(arena), threads, isa), queue(cpu.queue) {
    queue.watch(nullptr);
  }
  ThreadTeam* threads() { return cpu.threads(); }
  void use_store(WeightStore* store) { cpu.use_store(store); }

  CpuDevice cpu;
  timed::Queue<cpu::Queue> queue;
};

}  // namespace cachalot
