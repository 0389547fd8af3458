// The whole benchmark: the machine, then steps of a model and their parts against it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/generation_speed.h"
#include "bench/row.h"
#include "bench/step_runner.h"

namespace cachalot::bench {

struct BenchOptions {
  std::string model;  // folder; on a GPU a configuration, of a folder or a file
  // A GPU instead of the processors. Weights are made on it, the model's own are not read.
  bool gpu = false;
  std::optional<int64_t> experts;  // so many a layer, on a GPU; absent: all
  int threads = 0;                 // 0: one per CPU this process may use
  std::optional<Isa> isa;          // absent: the default of this machine
  std::optional<int64_t> layers;   // the first so many; absent: all
  bool huge_pages = false;         // the model is read into them
  StepChoice steps;
  std::string filter;  // of row names (row_matches)
  RepeatOptions repeat;
  MachineOptions machine;
  bool answers = true;  // also answer the model's examples, where it has some
  // Instead of all that: the cycles of an engine on the model's own weights
  // (bench/engine_cycles.h). On a GPU with experts where these say.
  bool cycles = false;
  ExpertsOn experts_on = ExpertsOn::as_fits;
  int64_t gpu_memory = 0;  // bytes, 0: what is free
};

// Absent functions are not called.
struct BenchCallbacks {
  std::function<void(const Machine&)> on_machine = {};
  std::function<void(const Row&)> on_row = {};
  std::function<void(const std::string&)> on_progress = {};  // what comes next
};

// A step that would take far longer than its share of the time, or more memory than is free, is
// left out, and the report says so; of chosen ones (by tokens or contexts) what takes ten minutes
// and more, unless the repetitions are chosen too. Errors: see BenchModel::open; sizes beyond the
// model's; nothing is left to run, as of a filter that matches nothing.
Result<Report> run_bench(const BenchOptions& options, const BenchCallbacks& callbacks = {});

}  // namespace cachalot::bench
