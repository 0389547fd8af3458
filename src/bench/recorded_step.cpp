#include "bench/recorded_step.h"

#include <memory>

#include "base/check.h"

namespace cachalot::bench {
namespace {

// Copies of what an operation read, while its cost is found.
class HostCopies {
 public:
  template <class T>
  void bring(View<T>& view) {
    if (view.absent()) return;
    auto& copy = copies_.emplace_back(static_cast<size_t>(view.bytes()));
    cuda::device_memory().copy(copy.data(), view.data, copy.size());
    view.data = reinterpret_cast<T*>(copy.data());
  }

 private:
  std::vector<std::vector<std::byte>> copies_;
};

template <class Args>
Cost cost_on_device(const Args& args) {
  return run_cost_of(args);
}

Cost cost_on_device(SparseAttentionArgs args) {
  HostCopies copies;
  copies.bring(args.rows.positions);
  copies.bring(args.rows.first_rows);
  copies.bring(args.window_starts);
  copies.bring(args.chosen);
  return run_cost_of(args);
}

Cost cost_on_device(IndexSelectArgs args) {
  HostCopies copies;
  copies.bring(args.rows.positions);
  copies.bring(args.rows.first_rows);
  copies.bring(args.candidates);
  return run_cost_of(args);
}

Cost cost_on_device(MoeExpertsArgs args) {
  HostCopies copies;
  copies.bring(args.ids);
  return run_cost_of(args);
}

// Chosen entries have one place for all layers, and are valid for some of them alone.
SparseAttentionArgs with_own_choice(SparseAttentionArgs args, void* memory) {
  args.chosen.data = static_cast<const int32_t*>(memory);
  return args;
}

void add_start_alone(RecordedCall& call, const SparseAttentionArgs& args) {
  if (args.chosen.absent() || !cuda::on_device(args.chosen.data)) return;
  const auto bytes = static_cast<size_t>(args.chosen.bytes());
  const MemorySpace& device = cuda::device_memory();
  const std::shared_ptr<void> memory(device.allocate(bytes), ReleaseTo{&device});
  CACHALOT_CHECK(memory != nullptr, "{} bytes on the device", bytes);
  call.keep_inputs = [args, memory, bytes] {
    cuda::device_memory().copy(memory.get(), args.chosen.data, bytes);
  };
  call.start_alone = [own = with_own_choice(args, memory.get()), memory](cuda::Queue& queue) {
    sparse_attention(queue, own);
  };
}
template <class Args>
void add_start_alone(RecordedCall&, const Args&) {}

}  // namespace

template <class Args>
void CallRecorder::note(std::string_view operation, const Args& args,
                        void (*run)(cuda::Queue&, const Args&)) {
  RecordedCall call{.record = {.operation = operation, .variant = timed::variant_of(args)},
                    .label = {},
                    .start = [args, run](cuda::Queue& queue) { run(queue, args); },
                    .keep_inputs = [] {},
                    .start_alone = {},
                    .cost = [args] { return cost_on_device(args); }};
  call.start_alone = call.start;
  add_start_alone(call, args);
  call.record.shapes = shapes_of(args);
  if constexpr (requires { timed::address_of(args.weight); }) {
    call.record.weight = timed::address_of(args.weight);
  }
  calls_.push_back(std::move(call));
}

#define CACHALOT_NOTE(function, Args)                                                           \
  void CallRecorder::before(const Args& args) {                                                 \
    note<Args>(#function, args, [](cuda::Queue& on, const Args& with) { function(on, with); }); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_NOTE)
#undef CACHALOT_NOTE

std::vector<RecordedCall> CallRecorder::take(const meta::Queue& queue) {
  CACHALOT_CHECK(queue.records().size() == calls_.size(), "{} operations, {} noted",
                 queue.records().size(), calls_.size());
  for (size_t i = 0; i < calls_.size(); ++i) calls_[i].label = queue.records()[i].label;
  return std::move(calls_);
}

}  // namespace cachalot::bench
