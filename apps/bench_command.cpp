#include "bench_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "bench/bench.h"
#include "bench/report_json.h"
#include "bench/table.h"
#include "default_model.h"
#include "number_options.h"
#include "report.h"
#include "usage_error.h"

namespace cachalot {
namespace {

struct BenchCommandOptions {
  bench::BenchOptions bench;
  std::string device = "cpu", isa, phases, tokens, contexts, compare, experts_on;
  int64_t layers = 0, experts = 0;
  bool json = false, processor_time = false;
};

// What says how processors run, or measures them.
Status read_gpu_options(BenchCommandOptions& options) {
  options.bench.gpu = true;
  if (options.experts > 0) options.bench.experts = options.experts;
  const auto only_cpu = [](std::string_view name) {
    usage_error("{}: expected --device cpu with it, found --device cuda", name);
  };
  if (!options.isa.empty()) only_cpu("--isa");
  if (options.processor_time) only_cpu("--processor-time");
  if (options.bench.threads != 0 && !options.bench.cycles) only_cpu("--threads");
  if (options.bench.huge_pages) only_cpu("--huge-pages");
  return {};
}

// What of a model lies where is a question to an engine alone.
void read_engine_options(BenchCommandOptions& options) {
  const bool said = !options.experts_on.empty() || options.bench.gpu_memory > 0;
  if (said && !(options.bench.cycles && options.device == "cuda")) {
    usage_error("{}: expected --device cuda --cycles with it",
                options.experts_on.empty() ? "--gpu-memory" : "--experts-on");
  }
  const auto only_steps = [&](bool given, std::string_view name) {
    if (options.bench.cycles && given) {
      usage_error("{}: expected no --cycles with it, which run the whole model as it is", name);
    }
  };
  if (!options.bench.cycles && options.bench.filter.starts_with("cycle/")) {
    usage_error("--filter: expected --cycles with it, found \"{}\"", options.bench.filter);
  }
  only_steps(options.layers > 0, "--layers");
  only_steps(options.experts > 0, "--experts");
  only_steps(!options.phases.empty(), "--phases");
  only_steps(!options.tokens.empty(), "--tokens");
  only_steps(!options.contexts.empty(), "--contexts");
  if (options.experts_on == "gpu") options.bench.experts_on = ExpertsOn::gpu;
  if (options.experts_on == "cpu") options.bench.experts_on = ExpertsOn::cpu;
  if (options.experts_on == "stream") options.bench.experts_on = ExpertsOn::streamed;
}

Status read_options(BenchCommandOptions& options) {
  bench::StepChoice& steps = options.bench.steps;
  steps.phases = or_usage_error(bench::parse_phases("--phases", options.phases));
  steps.tokens = or_usage_error(bench::parse_sizes("--tokens", options.tokens, 1));
  steps.contexts = or_usage_error(bench::parse_sizes("--contexts", options.contexts, 0));
  if (options.layers > 0) options.bench.layers = options.layers;
  read_engine_options(options);
  // Answers belong to the usual rows alone.
  options.bench.answers =
      options.phases.empty() && options.tokens.empty() && options.contexts.empty();
  if (options.device == "cuda") return read_gpu_options(options);
  if (options.experts > 0) {
    usage_error("--experts: expected --device cuda with it, found --device cpu");
  }
  if (!options.isa.empty()) {
    const Result<Isa> isa = choose_isa(options.isa);
    if (!isa) usage_error(isa.error().in("--isa"));
    options.bench.isa = *isa;
  }
  if (options.processor_time) {
    if (options.bench.threads != 1) {
      usage_error(
          "--processor-time: expected --threads 1 with it, as it is the time of one thread");
    }
    options.bench.machine.clock = options.bench.repeat.clock = processor_seconds;
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.bench.model, ignored)) {
    return fail("{}: expected a model folder; name one with -m FOLDER", options.bench.model);
  }
  return {};
}

Status run_command(BenchCommandOptions options) {
  CACHALOT_OK(read_options(options));
  std::vector<bench::OldRow> old_rows;
  if (!options.compare.empty()) {
    // Before anything runs: a wrong name should not cost minutes.
    CACHALOT_TRY(old_rows, bench::read_report(options.compare));
  }
  const bool terminal = isatty(STDERR_FILENO);
  const bool table = !options.json && options.compare.empty();
  const bench::Columns columns = options.bench.cycles ? bench::Columns::times
                                 : options.bench.gpu  ? bench::Columns::floors
                                                      : bench::Columns::limits;
  bench::BenchCallbacks callbacks;
  callbacks.on_progress = [&](const std::string& text) {
    if (terminal) report("\r\033[K{} ...", text);
  };
  const auto clear = [&] {
    if (terminal) report("\r\033[K");
  };
  if (!options.json) {
    callbacks.on_machine = [&](const bench::Machine& machine) {
      clear();
      fmt::print("{}\n{}", bench::machine_text(machine), table ? bench::table_header(columns) : "");
      std::fflush(stdout);
    };
  }
  if (table) {
    callbacks.on_row = [&](const bench::Row& row) {
      clear();
      fmt::print("{}", bench::table_line(row, columns));
      std::fflush(stdout);
    };
  }
  const auto run = bench::run_bench(options.bench, callbacks);
  // What only the opened model could judge.
  if (!run && run.error().message.starts_with("--")) usage_error(run.error());
  CACHALOT_TRY(const bench::Report result, run);
  clear();
  const bench::Comparison comparison = bench::compare(old_rows, result.rows);
  const bool compared = !options.compare.empty();
  if (options.json) {
    fmt::print("{}\n", bench::json_of(result, compared ? &comparison : nullptr));
  } else if (compared) {
    fmt::print("{}", bench::comparison_text(comparison, result.rows));
  }
  for (const std::string& note : result.notes) report("note: {}\n", note);
  return {};
}

void add_options(CLI::App& command, BenchCommandOptions& options) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 20);
  options.bench.model = default_model();
  command
      .add_option(
          "-m,--model", options.bench.model,
          "Model folder; with --device cuda only its configuration is read, also from a file")
      ->capture_default_str();
  command
      .add_option("--device", options.device,
                  "cpu, or cuda: an NVIDIA Hopper GPU, with weights made on it")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--phases", options.phases,
                     "Of decode, prefill, draft, verify, shortcut (default: all; on a GPU without "
                     "shortcut)");
  command.add_option("--tokens", options.tokens, "Tokens of a step: 1,16,2K (default: 1 to 2K)");
  command.add_option("--contexts", options.contexts,
                     "Positions in the caches before a step (default: 0,4K,32K,128K,1M)");
  command.add_option("--filter", options.bench.filter,
                     "Rows whose name holds this, or matches it if it has * or ?");
  command
      .add_option("--layers", options.layers,
                  "Only the first so many layers (default: all; on a GPU as many as fit)")
      ->check(positive);
  command
      .add_option("--experts", options.experts,
                  "Only so many experts a layer, with --device cuda: room for more layers")
      ->check(positive);
  command
      .add_option("--gpu-memory", options.bench.gpu_memory,
                  "What --cycles may take of the GPU's memory, 100GB or 80GiB (default: what is "
                  "free)")
      ->transform(size_in_bytes());
  command
      .add_option(
          "--experts-on", options.experts_on,
          "Where the experts of --cycles lie, as --experts of run: auto, gpu, cpu or stream")
      ->check(CLI::IsMember({"auto", "cpu", "gpu", "stream"}));
  command
      .add_option("--seconds", options.bench.repeat.seconds,
                  "Time for each step, at least twice it; a GPU repeats it three times instead")
      ->check(number_from(0, 3600))
      ->capture_default_str();
  command
      .add_option("--repeat", options.bench.repeat.repetitions, "Run each step exactly so often")
      ->check(positive);
  command.add_option("--threads", options.bench.threads, "CPU threads (0: one per available CPU)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_flag(
      "--processor-time", options.processor_time,
      "Time the processor runs the one thread, not the clock on the wall: for a machine "
      "that others use");
  command.add_option("--isa", options.isa, "Instruction set (default: the best here)");
  command.add_flag("--huge-pages", options.bench.huge_pages,
                   "Read the model into memory of 2 MB pages first");
  command.add_flag("--cycles", options.bench.cycles,
                   "Instead of steps: an engine's cycles, the host's part and the choice of tokens "
                   "included, on the folder's own weights");
  command.add_flag("--json", options.json, "Write one JSON object: machine, rows, notes");
  command.add_option(
      "--compare", options.compare,
      "A file that --json wrote: show what became slower or faster; with --json in it");
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure the machine, and a model's steps against it");
  command->footer(
      "Rows are named operation/phase/shape, for example experts/decode/tokens1. The time is set\n"
      "against the larger of bytes / read bandwidth and operations / peak: docs/performance.md.");
  add_options(*command, *options);
  command->callback([options] {
    const Status status = run_command(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
