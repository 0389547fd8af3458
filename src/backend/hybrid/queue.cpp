#include "backend/hybrid/queue.h"

#include <type_traits>
#include <utility>

namespace cachalot::hybrid {

Queue::Queue(Arena arena, ThreadTeam& team, Isa isa)
    : gpu_(std::move(arena)),
      cpu_(team, isa, Arena(0)),
      experts_(gpu_, cpu_, on_host_),
      tables_(gpu_) {}

// One operation for the host: stages its tensors, then lets the branch of tables call it.
class HostCall {
 public:
  explicit HostCall(Queue& queue) : queue_(queue) {}

  template <class Args>
  using Operation = void (*)(cpu::Queue&, const Args&);

  // `weight` and the number of rows tell this call from others of a step. Only the way of the
  // outputs to the device, where operations before this one may still use their memory, is in the
  // GPU's stream.
  template <class Args>
  void run(const Args& args, Operation<Args> operation, const void* weight, int64_t rows) {
    cuda::Branch& branch = queue_.tables_;
    const Staged staged = stage(args, operation, {weight, rows}, queue_.staging_[weight]);
    for (const Copy& copy : staged.inputs) branch.copy(copy.to, copy.from, copy.bytes);
    branch.call(run_job, staged.job);
    branch.join();
    for (const Copy& copy : staged.outputs) queue_.gpu_.copy(copy.to, copy.from, copy.bytes);
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Staged {
    std::vector<Copy> inputs, outputs;
    Queue::Job* job = nullptr;
  };

  template <class Args>
  struct JobOf final : Queue::Job {
    JobOf(Queue& on, Operation<Args> what, const Args& with)
        : queue(on), operation(what), args(with) {}
    void run() override {
      const std::scoped_lock lock(queue.on_host_);
      operation(queue.cpu_, args);
    }

    Queue& queue;
    Operation<Args> operation;
    Args args;
  };

  static void run_job(void* job) { static_cast<Queue::Job*>(job)->run(); }

  template <class Args>
  Staged stage(const Args& args, Operation<Args> operation, std::pair<const void*, int64_t> key,
               Staging& staging) {
    Staged out;
    std::byte* const first = staging.reserve(bytes_on_device(args));
    std::byte* at = first;
    Args staged = args;
    for_each_on_device(staged, [&](auto& view, Access access) {
      const auto bytes = static_cast<size_t>(view.bytes());
      auto* device = view.data;
      view.data = reinterpret_cast<decltype(view.data)>(at);
      if (access != Access::out) out.inputs.push_back({at, device, bytes});
      using T = std::remove_reference_t<decltype(*device)>;
      if constexpr (!std::is_const_v<T>) {
        if (access != Access::in) out.outputs.push_back({device, at, bytes});
      }
      at += Staging::aligned(bytes);
    });
    std::unique_ptr<Queue::Job>& job = queue_.jobs_[{key.first, key.second, first}];
    if (!job) job = std::make_unique<JobOf<Args>>(queue_, operation, staged);
    out.job = job.get();
    return out;
  }

  // What the operation takes from or leaves on the device; weights of the host stay where they are.
  template <class Args, class Visit>
  static void for_each_on_device(Args& args, Visit visit) {
    args.fields([&](auto, const auto& view, Access access) {
      using V = std::remove_cvref_t<decltype(view)>;
      if (view.elements() > 0 && cuda::on_device(view.data)) visit(const_cast<V&>(view), access);
    });
  }
  template <class Args>
  static size_t bytes_on_device(const Args& args) {
    size_t total = 0;
    Args copy = args;
    for_each_on_device(copy, [&](auto& view, Access) {
      total += Staging::aligned(static_cast<size_t>(view.bytes()));
    });
    return total;
  }

  Queue& queue_;
};

namespace {

template <class Args>
using OnGpu = void (*)(cuda::Queue&, const Args&);
template <class Args>
using OnCpu = void (*)(cpu::Queue&, const Args&);

template <class Args>
void choose(Queue& queue, const Args& args, OnGpu<Args> on_gpu, OnCpu<Args>) {
  on_gpu(queue.gpu(), args);
}

void choose(Queue& queue, const MoeExpertsArgs& args, OnGpu<MoeExpertsArgs>,
            OnCpu<MoeExpertsArgs>) {
  queue.experts().compute(args);
}

void choose(Queue& queue, const EngramGatherArgs& args, OnGpu<EngramGatherArgs> on_gpu,
            OnCpu<EngramGatherArgs> on_cpu) {
  if (cuda::on_device(args.codes.data)) return on_gpu(queue.gpu(), args);
  HostCall(queue).run(args, on_cpu, args.codes.data, args.table_rows.extent(0));
}

// Of all engram layers: what comes after it need not wait to fetch their rows.
void choose(Queue& queue, const EngramHashArgs& args, OnGpu<EngramHashArgs> on_gpu,
            OnCpu<EngramHashArgs>) {
  on_gpu(queue.gpu(), args);
  queue.tables().mark();
}

}  // namespace

#define CACHALOT_CHOOSE(function, Args)                 \
  void function(Queue& queue, const Args& args) {       \
    choose(queue, args, cuda::function, cpu::function); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_CHOOSE)
#undef CACHALOT_CHOOSE

}  // namespace cachalot::hybrid
