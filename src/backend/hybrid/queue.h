// hybrid::Queue: the operations on a GPU, except what reads weights that stayed in the host's
// memory - experts that did not fit, engram tables - which this machine's processors compute beside
// it. Model code sees one queue.
//
// Such work is a branch of the GPU's stream: inputs to pinned memory, a call of the host, outputs
// back. It can be captured in a graph like kernels. An engram table's rows are known from a step's
// first operation on: they are fetched while the layers before theirs are computed. Experts:
// host_experts.h.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/cpu/queue.h"
#include "backend/cuda/branch.h"
#include "backend/cuda/queue.h"
#include "backend/hybrid/host_experts.h"
#include "backend/hybrid/staging.h"

namespace cachalot::hybrid {

class Queue {
 public:
  // `arena` lies in cuda::device_memory(). The team outlives the queue.
  Queue(Arena arena, ThreadTeam& team, Isa isa);

  Arena& arena() { return gpu_.arena(); }
  void label(std::string_view name) { gpu_.label(name); }

  // See ops/host_access.h.
  void copy_to_host(void* to, const void* from, size_t bytes) {
    gpu_.start_held();
    cuda::device_memory().copy(to, from, bytes);
  }
  void copy_from_host(void* to, const void* from, size_t bytes) {
    gpu_.start_held();
    cuda::device_memory().copy(to, from, bytes);
  }

  cuda::Queue& gpu() { return gpu_; }
  cpu::Queue& cpu() { return cpu_; }
  HostExperts& experts() { return experts_; }
  cuda::Branch& tables() { return tables_; }

 private:
  friend class HostCall;

  // An operation of the CPU queue with its arguments, called from the branch of tables.
  struct Job {
    virtual ~Job() = default;
    virtual void run() = 0;
  };

  cuda::Queue gpu_;
  cpu::Queue cpu_;
  // The branches may call the host at the same time.
  std::mutex on_host_;
  HostExperts experts_;
  cuda::Branch tables_;
  std::map<const void*, Staging> staging_;  // by table
  // By the weight an operation reads, its number of rows, and where its tensors were staged: a
  // graph calls it again.
  std::map<std::tuple<const void*, int64_t, const void*>, std::unique_ptr<Job>> jobs_;
};

#define CACHALOT_DECLARE_OPERATION(function, Args) void function(Queue& queue, const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_OPERATION)
#undef CACHALOT_DECLARE_OPERATION

static_assert(cachalot::Queue<Queue>);

}  // namespace cachalot::hybrid
