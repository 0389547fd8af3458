#include "bench/gpu_step_runner.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>

#include "bench/gpu_timer.h"

namespace cachalot::bench {
namespace {

// Steps of more rows take far longer than starting their kernels, and more memory than is left if
// no tensor makes room for another.
constexpr int64_t kShortStepRows = 256;
constexpr int kShortReplays = 11, kLongReplays = 3;
constexpr int64_t kRepetitions = 3;

using Memory = std::unique_ptr<void, ReleaseTo>;

Memory allocate(int64_t bytes) {
  const MemorySpace& device = cuda::device_memory();
  Memory memory(device.allocate(static_cast<size_t>(bytes)), ReleaseTo{&device});
  CACHALOT_CHECK(memory != nullptr, "{} bytes on the device", bytes);
  return memory;
}

// A step's arrays on the device, at the same place whatever stands in them.
class PlacedInputs {
 public:
  PlacedInputs(const StepData& step, View<const int32_t> page_table)
      : inputs_(step.inputs(page_table)) {
    for (View<const int32_t>* array : arrays_of(inputs_)) {
      memory_.push_back(allocate(array->bytes()));
      array->data = static_cast<const int32_t*>(memory_.back().get());
    }
  }

  const StepInputs& inputs() const { return inputs_; }
  void upload(const StepData& step) {
    StepInputs from = step.inputs(inputs_.page_table);
    size_t i = 0;
    for (View<const int32_t>* array : arrays_of(from)) {
      cuda::device_memory().copy(memory_[i++].get(), array->data,
                                 static_cast<size_t>(array->bytes()));
    }
  }

 private:
  static std::vector<View<const int32_t>*> arrays_of(StepInputs& inputs) {
    std::vector<View<const int32_t>*> arrays{
        &inputs.rows.positions, &inputs.rows.slots,  &inputs.rows.first_rows, &inputs.ids,
        &inputs.image_index,    &inputs.output_rows, &inputs.draft_places,    &inputs.drafts,
        &inputs.window_starts};
    std::erase_if(arrays, [](const View<const int32_t>* array) { return array->elements() == 0; });
    return arrays;
  }

  StepInputs inputs_;
  std::vector<Memory> memory_;
};

// "layer 12" -> what kind of layer that is; other labels as they are.
std::string group_of(const BenchModel& model, const std::string& label) {
  constexpr std::string_view kStart = "layer ";
  if (!label.starts_with(kStart)) return label;
  int64_t layer = 0;
  std::from_chars(label.data() + kStart.size(), label.data() + label.size(), layer);
  return "layer." + model.kind_of(layer);
}

class GpuStep {
 public:
  GpuStep(const BenchModel& model, const StepSize& size, const SyntheticCaches& caches)
      : model_(model),
        steps_(steps_of(size, model.config)),
        is_short_(rows_of(size, model.config) <= kShortStepRows),
        queue_(Arena(0, cuda::device_memory())),
        timer_(queue_) {
    const View<const int32_t> table = caches.page_table();
    table_ = allocate(table.bytes());
    cuda::device_memory().copy(table_.get(), table.data, static_cast<size_t>(table.bytes()));
    for (const StepData& step : steps_) {
      inputs_.emplace_back(
          step, View<const int32_t>(static_cast<const int32_t*>(table_.get()), table.shape));
    }
    meta::Queue plan;
    note(plan, caches.caches());
    CallRecorder recorder;
    // It ends with this constructor, but for its memory.
    recorded_ =
        std::make_unique<meta::Queue>(Arena(plan.arena().peak(), cuda::device_memory()), recorder);
    logits_ = note(*recorded_, caches.caches());
    calls_ = recorder.take(*recorded_);
    for (const RecordedCall& call : calls_) all_.push_back(&call);
  }

  // Other tokens: all operations run one by one, and what they cost is noted.
  Repetition prepare(RandomWords& random) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].draw(random);
      inputs_[i].upload(steps_[i]);
    }
    Repetition repetition;
    for (size_t i = 0; i < calls_.size(); ++i) {
      const RecordedCall& call = calls_[i];
      call.keep_inputs();
      call.start(queue_);
      queue_.wait();
      if (i == 0 || call.label != calls_[i - 1].label) repetition.ranges.push_back({call.label});
      timed::Record record = call.record;
      record.range = repetition.ranges.size() - 1;
      record.cost = call.cost();
      repetition.records.push_back(std::move(record));
    }
    return repetition;
  }

  void time(Repetition& repetition) {
    const int replays = is_short_ ? kShortReplays : kLongReplays;
    repetition.seconds = timer_.graph_seconds(all_, replays);
    if (is_short_) {
      time_in_groups(repetition);
    } else {
      time_one_by_one(repetition);
    }
    double sum = 0;
    for (const timed::Record& record : repetition.records) sum += record.seconds;
    repetition.between_operations = 1 - sum / repetition.seconds;
  }

  Status check_logits() {
    std::vector<float> values(static_cast<size_t>(logits_.elements()));
    cuda::device_memory().copy(values.data(), logits_.data, values.size() * sizeof(float));
    const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
    if (bad == values.end()) return {};
    return fail("the step's logits are not finite: {} at element {} of {}", *bad,
                bad - values.begin(), values.size());
  }

 private:
  View<float> note(meta::Queue& queue, const Caches& caches) {
    if (is_short_) queue.keep_tensors();
    return run_steps(queue, model_, caches, steps_, [&](const StepData& step) {
      return inputs_[static_cast<size_t>(&step - steps_.data())].inputs();
    });
  }

  // Operations in place change what they read: before each group the step puts it right.
  void time_in_groups(Repetition& repetition) {
    std::map<std::string, std::vector<size_t>> rows, layers;
    for (size_t i = 0; i < calls_.size(); ++i) {
      const timed::Record& record = calls_[i].record;
      rows[model_.name_of(record.operation, record.variant, record.weight)].push_back(i);
      layers[group_of(model_, calls_[i].label)].push_back(i);
    }
    for (const auto& [name, members] : rows) {
      const double seconds = seconds_of(members, repetition) / static_cast<double>(members.size());
      for (size_t i : members) repetition.records[i].seconds = seconds;
    }
    for (const auto& [name, members] : layers) {
      std::map<size_t, bool> ranges;
      for (size_t i : members) ranges[repetition.records[i].range] = true;
      const double seconds = seconds_of(members, repetition) / static_cast<double>(ranges.size());
      for (const auto& [range, unused] : ranges) repetition.ranges[range].seconds = seconds;
    }
  }

  // Weights and caches, which are most of what is read where it is much, are not found in the L2
  // cache by a step: it reads far more in between.
  static bool is_cold(const std::vector<size_t>& members, const Repetition& repetition) {
    constexpr int64_t kMuch = int64_t{1} << 20, kFarMoreThanTheCache = int64_t{192} << 20;
    int64_t bytes = 0;
    for (size_t i : members) bytes += repetition.records[i].cost.bytes_read;
    return bytes >= kMuch * std::ssize(members) && bytes < kFarMoreThanTheCache;
  }

  double seconds_of(const std::vector<size_t>& members, const Repetition& repetition) {
    for (const RecordedCall& call : calls_) call.start(queue_);
    CallList calls;
    for (size_t i : members) calls.push_back(&calls_[i]);
    return timer_.round_seconds(calls, is_cold(members, repetition), kShortReplays);
  }

  void time_one_by_one(Repetition& repetition) {
    const std::vector<double> seconds = timer_.call_seconds(all_);
    for (size_t i = 0; i < calls_.size(); ++i) {
      timed::Record& record = repetition.records[i];
      record.seconds = seconds[i];
      repetition.ranges[record.range].seconds += seconds[i];
    }
  }

  const BenchModel& model_;
  std::vector<StepData> steps_;
  bool is_short_;
  Memory table_;
  std::vector<PlacedInputs> inputs_;
  std::unique_ptr<meta::Queue> recorded_;
  View<float> logits_;
  std::vector<RecordedCall> calls_;
  CallList all_;
  cuda::Queue queue_;
  GpuTimer timer_;
};

}  // namespace

Result<std::vector<Repetition>> run_step_on_gpu(const BenchModel& model, const StepSize& size,
                                                const SyntheticCaches& caches,
                                                const RepeatOptions& options) {
  GpuStep step(model, size, caches);
  RandomWords random(static_cast<uint64_t>(size.tokens + 7));
  const int64_t wanted = options.repetitions > 0 ? options.repetitions : kRepetitions;
  std::vector<Repetition> repetitions;
  while (std::ssize(repetitions) < wanted) {
    Repetition repetition = step.prepare(random);
    CACHALOT_OK(step.check_logits());
    step.time(repetition);
    repetitions.push_back(std::move(repetition));
  }
  return repetitions;
}

}  // namespace cachalot::bench
