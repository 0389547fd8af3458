#include "bench/gpu_bench.h"

#include <algorithm>
#include <map>
#include <string>

#include "bench/gpu_machine.h"
#include "bench/gpu_step_runner.h"
#include "bench/planned_rows.h"
#include "bench/step_limits.h"
#include "bench/summary.h"
#include "checkpoint/synth.h"
#include "model/prefill_shortcut.h"

namespace cachalot::bench {
namespace {

// For caches, workspace and what kernels take: 64 sequences at 32K positions and a prompt of 8K
// tokens each need about half of it.
constexpr int64_t kBesidesWeights = int64_t{20} << 30;

class GpuBench {
 public:
  GpuBench(const BenchOptions& options, const BenchCallbacks& callbacks, cuda::DeviceInfo device)
      : options_(options), callbacks_(callbacks), device_(std::move(device)) {}

  Result<Report> run() {
    report_.model = options_.model;
    // First of all: it costs nothing to be told that there is no such model.
    CACHALOT_TRY(const ModelConfig config, config_at(options_.model));
    std::optional<int64_t> layers = options_.layers;
    if (!layers) {
      CACHALOT_TRY(
          layers, layers_that_fit(config, options_.experts, device_.free_memory - kBesidesWeights));
    }
    CACHALOT_TRY(const BenchModel planned,
                 BenchModel::planned(options_.model, layers, options_.experts));
    const int64_t block = planned.config.has_drafts() ? planned.config.dspark_block_size : 0;
    CACHALOT_OK(check_sizes(options_.steps, planned.config));
    std::vector<StepSize> sizes = gpu_steps_to_run(options_.steps, block);
    std::erase_if(sizes, [&](const StepSize& size) {
      return (size.phase == Phase::shortcut && !check_shortcut(planned.config)) ||
             !any_row_can_match(planned, size, options_.filter);
    });
    if (sizes.empty()) return fail("{}", why_no_row(options_.steps, block, options_.filter));
    progress("measuring the GPU");
    report_.machine = measure_gpu(device_);
    if (callbacks_.on_machine) callbacks_.on_machine(report_.machine);
    progress("making weights");
    CACHALOT_TRY(const BenchModel model,
                 BenchModel::made(options_.model, layers, options_.experts, cuda::device_memory()));
    report_.notes = model.notes;
    Summary summary(model, report_.machine);
    for (const StepSize& size : sizes) CACHALOT_OK(run(model, size, summary));
    if (!report_.rows.empty()) return std::move(report_);
    return fail("{}", why_no_row(options_.steps, block, options_.filter));
  }

 private:
  void progress(const std::string& text) {
    if (callbacks_.on_progress) callbacks_.on_progress(text);
  }

  Status run(const BenchModel& model, const StepSize& size, Summary& summary) {
    progress(size.text());
    const SyntheticCaches caches(model.config,
                                 {.sequences = size.sequences(),
                                  .context = size.context,
                                  .tokens = written_positions(size, model.config),
                                  .shortcut_tail = shortcut_tail(size, model.config)},
                                 cuda::device_memory());
    const auto repetitions = run_step_on_gpu(model, size, caches, options_.repeat);
    if (!repetitions) return fail("{}: {}", size.text(), repetitions.error().message);
    for (Row& row : summary.rows_of(size, *repetitions)) {
      if (!row_matches(row.name, options_.filter)) continue;
      if (callbacks_.on_row) callbacks_.on_row(row);
      report_.rows.push_back(std::move(row));
    }
    return {};
  }

  const BenchOptions& options_;
  const BenchCallbacks& callbacks_;
  cuda::DeviceInfo device_;
  Report report_;
};

}  // namespace

Result<int64_t> layers_that_fit(const ModelConfig& config, std::optional<int64_t> experts,
                                int64_t bytes) {
  const auto checkpoint_of = [&](std::optional<int64_t> layers) -> Result<Checkpoint> {
    CACHALOT_TRY(const ModelConfig some,
                 reduced_config(config, {.layers = layers, .experts = experts}));
    return Checkpoint::planned(some);
  };
  CACHALOT_TRY(const Checkpoint whole, checkpoint_of(std::nullopt));
  // A layer's alone: which drafts and engram tables stay with fewer layers is seen below.
  std::map<int64_t, int64_t> layer_bytes;
  for (const TensorEntry& tensor : whole.tensors()) {
    constexpr std::string_view kStart = "layers.";
    if (!tensor.name.starts_with(kStart)) continue;
    layer_bytes[std::stoll(tensor.name.substr(kStart.size()))] += std::ssize(tensor.bytes);
  }
  int64_t layers = 0;
  for (int64_t sum = 0; layers < config.n_layers; ++layers) {
    sum += layer_bytes[layers];
    if (sum > bytes) break;
  }
  for (; layers > 1; --layers) {
    CACHALOT_TRY(const Checkpoint some, checkpoint_of(layers));
    if (some.total_bytes() <= bytes) break;
  }
  return std::max<int64_t>(1, layers);
}

Result<Report> run_gpu_bench(const BenchOptions& options, const BenchCallbacks& callbacks) {
  CACHALOT_TRY(cuda::DeviceInfo device, cuda::find_device());
  return GpuBench(options, callbacks, std::move(device)).run();
}

}  // namespace cachalot::bench
