#include "bench/bench.h"

#include <algorithm>
#include <limits>

#include "base/memory_placement.h"
#include "bench/engine_cycles.h"
#include "bench/gpu_bench.h"
#include "bench/gpu_machine.h"
#include "bench/picture.h"
#include "bench/planned_rows.h"
#include "bench/step_limits.h"
#include "bench/summary.h"
#include "checkpoint/huge_pages.h"
#include "model/prefill_shortcut.h"

namespace cachalot::bench {
namespace {

// A step may be expected to take so many times its share before it is left out.
constexpr double kPatience = 4;
// One that was asked for, so many seconds: with three repetitions half an hour.
constexpr double kMostSeconds = 600;

class Bench {
 public:
  Bench(const BenchOptions& options, const BenchCallbacks& callbacks, BenchModel model, Isa isa)
      : options_(options),
        callbacks_(callbacks),
        model_(std::move(model)),
        team_(options.threads),
        isa_(isa) {}

  Result<Report> run() {
    report_.model = options_.model;
    const int64_t block = model_.config.has_drafts() ? model_.config.dspark_block_size : 0;
    CACHALOT_OK(check_sizes(options_.steps, model_.config));
    std::vector<StepSize> sizes = steps_to_run(options_.steps, block);
    // Before planning, which takes as long as the steps are large.
    left_out_ = leave_out_what_does_not_fit(model_, available_memory(), sizes);
    std::erase_if(sizes, [&](const StepSize& size) {
      return (size.phase == Phase::shortcut && !check_shortcut(model_.config)) ||
             !any_row_can_match(model_, size, options_.filter);
    });
    const auto no_row = [&] {
      if (!left_out_.empty()) return fail("--tokens, --contexts: {}", left_out_.back());
      return fail("{}", why_no_row(options_.steps, block, options_.filter));
    };
    // Where that is known already nothing is measured.
    if (sizes.empty() && !shows_picture() && !answers_examples()) return no_row();
    progress("reading the weights");
    const auto weights = model_.warm();
    progress("measuring the machine");
    report_.machine = measure_machine(team_, isa_, options_.machine);
    measure_weights(team_, weights, report_.machine, options_.machine);
    if (callbacks_.on_machine) callbacks_.on_machine(report_.machine);
    report_.notes = model_.notes;
    Summary summary(model_, report_.machine);
    for (const StepSize& size : sizes) run(size, summary);
    if (shows_picture()) show_picture();
    if (answers_examples()) CACHALOT_OK(answer_examples());
    report_.notes.insert(report_.notes.end(), left_out_.begin(), left_out_.end());
    if (!report_.rows.empty()) return std::move(report_);
    return no_row();
  }

 private:
  void progress(const std::string& text) {
    if (callbacks_.on_progress) callbacks_.on_progress(text);
  }

  void add(Row row) {
    if (!row_matches(row.name, options_.filter)) return;
    if (callbacks_.on_row) callbacks_.on_row(row);
    report_.rows.push_back(std::move(row));
  }

  // Whether the step runs at all; leaves a note if not.
  bool is_wanted(const StepSize& size) {
    const bool chosen = !options_.steps.tokens.empty() || !options_.steps.contexts.empty();
    if (options_.repeat.repetitions > 0) return true;
    Floor floor(report_.machine);
    floor.add("", planned_cost(model_, size));
    const double patience = chosen ? kMostSeconds : kPatience * options_.repeat.seconds;
    if (floor.seconds() < patience) return true;
    const std::string how =
        chosen ? "--repeat 1"
               : fmt::format("--contexts {} --tokens {}", short_size(size.context), size.tokens);
    left_out_.push_back(
        fmt::format("{} left out: it takes {:.0f} s at least, once; ask for it "
                    "with {}",
                    size.text(), floor.seconds(), how));
    return false;
  }

  void run(const StepSize& size, Summary& summary) {
    if (!is_wanted(size)) return;
    progress(size.text());
    const SyntheticCaches caches(model_.config,
                                 {.sequences = size.sequences(),
                                  .context = size.context,
                                  .tokens = written_positions(size, model_.config),
                                  .shortcut_tail = shortcut_tail(size, model_.config)});
    if (caches.shared()) {
      report_.notes.push_back(fmt::format(
          "{}: the sequences read the same compressed rows, to save memory", size.text()));
    }
    const auto repetitions = run_step(model_, size, caches, team_, isa_, options_.repeat);
    for (Row& row : summary.rows_of(size, repetitions)) add(std::move(row));
  }

  // With all phases.
  bool shows_picture() const {
    return options_.steps.phases.empty() && !options_.layers &&
           std::ranges::any_of(picture_row_names(model_), [&](const std::string& name) {
             return row_matches(name, options_.filter);
           });
  }
  void show_picture() {
    progress("picture");
    for (Row& row : picture_rows(model_, report_.machine, team_, isa_, options_.repeat)) {
      add(std::move(row));
    }
  }

  bool answers_examples() const {
    return options_.answers && !options_.layers && has_examples(options_.model) &&
           (options_.filter.empty() || row_matches("answers/plain/tokens1", options_.filter) ||
            row_matches("answers/drafts/tokens1", options_.filter));
  }
  Status answer_examples() {
    progress("answers");
    GenerationOptions generation;
    generation.engine.threads = options_.threads;
    generation.engine.isa = isa_;
    generation.engine.max_context = std::min<int64_t>(4096, model_.config.max_position_embeddings);
    CACHALOT_TRY(GenerationSpeed speed, measure_generation(options_.model, generation));
    for (Row& row : speed.rows) add(std::move(row));
    if (speed.speed_up > 0) {
      report_.notes.push_back(fmt::format(
          "answers with drafts are {:.2f} times as fast as plain ones, {:.2f} tokens a cycle",
          speed.speed_up, speed.tokens_per_cycle));
    }
    return {};
  }

  const BenchOptions& options_;
  const BenchCallbacks& callbacks_;
  BenchModel model_;
  ThreadTeam team_;
  Isa isa_;
  Report report_;
  std::vector<std::string> left_out_;  // notes of steps
};

Result<Machine> machine_of(const BenchOptions& options, Isa isa) {
  if (options.gpu) {
    CACHALOT_TRY(const cuda::DeviceInfo device, cuda::find_device());
    return measure_gpu(device);
  }
  ThreadTeam team(options.threads);
  return measure_machine(team, isa, options.machine);
}

Result<Report> run_cycles(const BenchOptions& options, const BenchCallbacks& callbacks) {
  const auto progress = [&](const char* text) {
    if (callbacks.on_progress) callbacks.on_progress(text);
  };
  CACHALOT_TRY(const Isa isa,
               options.isa ? choose_isa(name_of(*options.isa)) : isa_from_environment());
  // What can be said at once comes before anything is measured.
  CACHALOT_OK(Checkpoint::open(options.model));
  if (!any_cycle_matches(options.filter)) {
    return fail("--filter: no row matches \"{}\"; without it bench shows them all", options.filter);
  }
  Report report{.model = options.model};
  progress("measuring the machine");
  CACHALOT_TRY(report.machine, machine_of(options, isa));
  if (callbacks.on_machine) callbacks.on_machine(report.machine);
  progress("cycles");
  CycleOptions cycle_options;
  cycle_options.engine.backend = options.gpu ? Backend::cuda : Backend::cpu;
  cycle_options.engine.experts_on = options.experts_on;
  cycle_options.engine.gpu_memory = options.gpu_memory;
  cycle_options.engine.threads = options.threads;
  cycle_options.engine.isa = isa;
  if (options.repeat.repetitions > 0) {
    cycle_options.cycles = options.repeat.repetitions;
    cycle_options.patience = std::numeric_limits<double>::infinity();
  }
  cycle_options.filter = options.filter;
  CACHALOT_TRY(EngineCycles cycles, measure_cycles(options.model, cycle_options, callbacks.on_row));
  report.rows = std::move(cycles.rows);
  report.notes = std::move(cycles.notes);
  report.notes.push_back("cycles of an engine: " + cycles.engine);
  return report;
}

}  // namespace

Result<Report> run_bench(const BenchOptions& options, const BenchCallbacks& callbacks) {
  if (options.cycles) return run_cycles(options, callbacks);
  if (options.gpu) return run_gpu_bench(options, callbacks);
  CACHALOT_TRY(const Isa isa,
               options.isa ? choose_isa(name_of(*options.isa)) : isa_from_environment());
  CACHALOT_TRY(BenchModel model, BenchModel::open(options.model, options.layers));
  if (options.huge_pages) CACHALOT_OK(use_huge_pages(*model.checkpoint));
  return Bench(options, callbacks, std::move(model), isa).run();
}

}  // namespace cachalot::bench
