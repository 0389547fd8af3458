// cpu::Queue: the operations of the seam on this machine's processors, at once and in order.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/cpu/scratch.h"
#include "base/cpu_info.h"
#include "base/thread_team.h"
#include "ops/queue.h"

namespace cachalot {
class WeightStore;
}

namespace cachalot::cpu {

struct MatmulKernels;
struct RowKernels;

class Queue {
 public:
  // The team outlives the queue. isa must be one this machine supports.
  Queue(ThreadTeam& team, Isa isa, Arena arena);

  Arena& arena() { return arena_; }
  void label(std::string_view) {}

  ThreadTeam& team() { return team_; }
  Isa isa() const { return isa_; }
  const MatmulKernels& matmul() const { return matmul_; }
  const RowKernels& rows() const { return rows_; }
  Scratch& scratch() { return scratch_; }

  // Where experts and engram rows come from instead of the mapping; nullptr: from the mapping. The
  // store outlives the queue. Operations report what fails there (WeightStore::fail_with) and leave
  // zeros.
  void use_store(WeightStore* store) { store_ = store; }
  WeightStore* store() const { return store_; }

  // Runs fn(const TeamMember&) on the team, or on the calling thread alone when `work`
  // (multiply-adds or elements, roughly) is too small to pay for waking the others, or while these
  // come too late.
  template <class F>
  void run(int64_t work, F&& fn) {
    if (work < kSmallWork || team_.keeps_away()) {
      team_.run_alone(fn);
    } else {
      team_.run(fn);
    }
  }

 private:
  // About 5 us of a core, what a run with two barriers costs.
  static constexpr int64_t kSmallWork = 1 << 16;

  ThreadTeam& team_;
  Isa isa_;
  Arena arena_;
  const MatmulKernels& matmul_;
  const RowKernels& rows_;
  Scratch scratch_;
  WeightStore* store_ = nullptr;
};

#define CACHALOT_DECLARE_OPERATION(function, Args) void function(Queue& queue, const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_OPERATION)
#undef CACHALOT_DECLARE_OPERATION

}  // namespace cachalot::cpu
