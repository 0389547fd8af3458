// A GPU with this machine's processors beside it, as a local engine's device.
//
// A step's arrays go to the device in one copy. The second step of a shape is captured and from
// then on started as one graph: what it starts depends on the shape alone (docs/architecture.md).
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "backend/hybrid/queue.h"
#include "base/clock.h"
#include "base/thread_team.h"
#include "engine/wanted_results.h"
#include "model/observer.h"
#include "model/step.h"
#include "storage/weight_store.h"

namespace cachalot {

// Memory that grows to what is asked of it.
class GrowingBuffer {
 public:
  explicit GrowingBuffer(const MemorySpace& memory) : memory_(&memory) {}
  // What it held before is lost when it grows.
  std::byte* reserve(size_t bytes);

 private:
  const MemorySpace* memory_;
  std::unique_ptr<void, ReleaseTo> block_;
  size_t capacity_ = 0;
};

class CudaDevice {
 public:
  // So many threads leave a CPU to the one that waits for the GPU, which polls.
  static int default_threads();

  // How often the team pauses before it sleeps. host_experts: it computes some of every layer's.
  static int spins(int threads, bool host_experts);

  // most_tokens: of a step.
  CudaDevice(Arena arena, int threads, Isa isa, bool host_experts, int64_t most_tokens);
  ThreadTeam* threads() { return &team; }
  void use_store(WeightStore* store) { queue.cpu().use_store(store); }

  // Steps that extend sequences and draft blocks have arrays of their own: one of each may be on
  // its way. What was brought before has been fetched by now.
  StepInputs bring(const StepInputs& inputs, const StepShape& shape);
  // An observer that shows `observer` copies in the host's memory; nullptr for nullptr.
  Observer* shown_to(Observer* observer);

  template <class Compute>
  auto run(const StepShape& shape, bool repeatable, Compute compute) {
    using Outputs = decltype(compute());
    if (!repeatable || shape.tokens > kGraphTokens) return compute();
    Steady& steady = steady_[{shape.tokens, shape.outputs, shape.draft_taps, shape.draft_block,
                              shape.part, shape.takes_drafts}];
    if (steady.graph == nullptr) {
      // The first one is run as it is: it may allocate, which a capture must not.
      if (!steady.seen) {
        steady.seen = true;
        return compute();
      }
      queue.gpu().begin_capture();
      steady.outputs = compute();
      steady.graph = queue.gpu().end_capture();
    }
    queue.gpu().launch(*steady.graph);
    return std::get<Outputs>(steady.outputs);
  }

  // Rows of logits that mean nothing (their best token is -1) come along, wanted or not.
  StepOutputs fetch(const StepOutputs& outputs, const WantedResults& wanted);
  DraftOutputs fetch(const DraftOutputs& outputs, const WantedResults& wanted);

  // The device reads there, too: a step may take drafts from what is kept.
  const MemorySpace& kept_memory() const { return cuda::pinned_memory(); }
  void keep(void* kept, const void* result, size_t bytes) {
    queue.gpu().copy(kept, result, bytes);
    queue.gpu().note();
  }
  double time_of_keeping() {
    queue.gpu().wait_for_noted();
    return wall_seconds();
  }

  ThreadTeam team;
  hybrid::Queue queue;

 private:
  // Longer steps are far longer than it takes to start their kernels.
  static constexpr int64_t kGraphTokens = 128;

  struct Steady {
    bool seen = false;
    std::unique_ptr<cuda::Graph> graph;
    std::variant<StepOutputs, DraftOutputs> outputs;
  };
  class Shower;

  template <class T>
  View<T> place_on_host(View<T> device, size_t& at);
  template <class T>
  View<T> fetched(View<T> device, size_t& at);
  void fetch_rows(View<float> device, View<float> host, std::span<const WantedResults::Rows> runs);

  // A step's arrays on both sides. Graphs read them where they are: they never move.
  struct Arrays {
    GrowingBuffer staged, device;
  };

  Arrays steps_, blocks_;
  GrowingBuffer staged_pages_, pages_, image_rows_, outputs_;
  std::vector<int32_t> page_table_;  // as it is on the device
  std::unique_ptr<Observer> shower_;
  std::map<std::tuple<int64_t, int64_t, bool, int64_t, StepPart, bool>, Steady> steady_;
};

}  // namespace cachalot
