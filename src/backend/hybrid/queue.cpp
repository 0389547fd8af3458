#include "backend/hybrid/queue.h"

#include <type_traits>
#include <utility>

#include "base/check.h"

namespace cachalot::hybrid {

Queue::Queue(Arena arena, ThreadTeam& team, Isa isa)
    : gpu_(std::move(arena)), cpu_(team, isa, Arena(0)) {}

// One operation for the host: stages its tensors, then lets the stream call it.
class HostCall {
 public:
  explicit HostCall(Queue& queue) : queue_(queue) {}

  template <class Args>
  void run(const Args& args, void (*operation)(cpu::Queue&, const Args&), const void* weight,
           int64_t rows) {
    std::byte* at = staging(bytes_on_device(args));
    Args staged = args;
    std::vector<Copy> outputs;
    for_each_on_device(staged, [&](auto& view, Access access) {
      const auto bytes = static_cast<size_t>(view.bytes());
      auto* device = view.data;
      view.data = reinterpret_cast<decltype(view.data)>(at);
      at += aligned(bytes);
      if (access != Access::out) {
        queue_.gpu_.copy(const_cast<void*>(static_cast<const void*>(view.data)), device, bytes);
      }
      using T = std::remove_reference_t<decltype(*device)>;
      if constexpr (!std::is_const_v<T>) {
        if (access != Access::in) outputs.push_back({device, view.data, bytes});
      }
    });
    std::unique_ptr<Queue::Job>& job =
        queue_.jobs_[{weight, rows, queue_.staging_.back().memory.get()}];
    if (!job) job = std::make_unique<JobOf<Args>>(queue_.cpu_, operation, staged);
    queue_.gpu_.call([](void* data) { static_cast<Queue::Job*>(data)->run(); }, job.get());
    for (const Copy& copy : outputs) queue_.gpu_.copy(copy.to, copy.from, copy.bytes);
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };

  template <class Args>
  struct JobOf final : Queue::Job {
    JobOf(cpu::Queue& on, void (*what)(cpu::Queue&, const Args&), const Args& with)
        : queue(on), operation(what), args(with) {}
    void run() override { operation(queue, args); }

    cpu::Queue& queue;
    void (*operation)(cpu::Queue&, const Args&);
    Args args;
  };

  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

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
    for_each_on_device(
        copy, [&](auto& view, Access) { total += aligned(static_cast<size_t>(view.bytes())); });
    return total;
  }

  std::byte* staging(size_t bytes) {
    auto& blocks = queue_.staging_;
    if (blocks.empty() || blocks.back().bytes < bytes) {
      const MemorySpace& pinned = cuda::pinned_memory();
      std::unique_ptr<void, ReleaseTo> memory(pinned.allocate(bytes), {&pinned});
      CACHALOT_CHECK(memory != nullptr, "{} bytes of pinned memory", bytes);
      blocks.push_back({std::move(memory), bytes});
    }
    return static_cast<std::byte*>(blocks.back().memory.get());
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

void choose(Queue& queue, const MoeExpertsArgs& args, OnGpu<MoeExpertsArgs> on_gpu,
            OnCpu<MoeExpertsArgs> on_cpu) {
  if (cuda::on_device(args.experts[0].w1.codes.data)) return on_gpu(queue.gpu(), args);
  HostCall(queue).run(args, on_cpu, args.experts.data(), args.x.extent(0));
}

void choose(Queue& queue, const EngramGatherArgs& args, OnGpu<EngramGatherArgs> on_gpu,
            OnCpu<EngramGatherArgs> on_cpu) {
  if (cuda::on_device(args.codes.data)) return on_gpu(queue.gpu(), args);
  HostCall(queue).run(args, on_cpu, args.codes.data, args.table_rows.extent(0));
}

}  // namespace

#define CACHALOT_CHOOSE(function, Args)                 \
  void function(Queue& queue, const Args& args) {       \
    choose(queue, args, cuda::function, cpu::function); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_CHOOSE)
#undef CACHALOT_CHOOSE

}  // namespace cachalot::hybrid
