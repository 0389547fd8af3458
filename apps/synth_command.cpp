#include "synth_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "interrupt.h"
#include "report.h"
#include "usage_error.h"

namespace cachalot {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One line that is drawn over itself, a few times a second.
class ProgressBar {
 public:
  void show(int64_t done, int64_t total) {
    const bool finished = done == total;
    if (!finished && seconds_since(drawn_) < 0.2) return;
    drawn_ = Clock::now();
    const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
    const auto filled = static_cast<size_t>(share * kWidth);
    report("\r[{}{}] {:3.0f}%  {:.1f} of {:.1f} GB  {:.2f} GB/s {}", std::string(filled, '#'),
           std::string(kWidth - filled, '.'), share * 100, static_cast<double>(done) / 1e9,
           static_cast<double>(total) / 1e9,
           static_cast<double>(done) / 1e9 / seconds_since(start_), finished ? "\n" : "");
  }

 private:
  static constexpr size_t kWidth = 40;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
};

// With a progress bar on stderr if that is a terminal.
Status synthesize(const SynthCommandOptions& options, const InterruptGuard& interrupt) {
  CACHALOT_TRY(const ModelConfig whole, config_at(options.config));
  const ModelConfig config = or_usage_error(reduced_config(whole, options.reduction));
  const std::filesystem::path source(options.config);
  const auto tokenizer = std::filesystem::is_directory(source) ? source : source.parent_path();
  SynthOptions synth;
  synth.seed = options.seed;
  ProgressBar bar;
  if (::isatty(STDERR_FILENO)) {
    synth.progress = [&bar](int64_t done, int64_t total) { bar.show(done, total); };
  }
  synth.cancelled = [&] { return interrupt.interrupted(); };
  CACHALOT_OK(write_random_checkpoint(config, options.out, tokenizer, synth));
  fmt::print("{}: {} layers, {} experts, {} draft stages\n", options.out, config.n_layers,
             config.n_routed_experts, config.n_mtp_layers);
  return {};
}

}  // namespace

void add_synth_command(CLI::App& app) {
  auto options = std::make_shared<SynthCommandOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a random checkpoint in the released layout");
  command->add_option("config", options->config, "Configuration file or checkpoint folder")
      ->required();
  command->add_option("out", options->out, "Folder to create")->required();
  command->add_option("--layers", options->reduction.layers,
                      "Keep this many layers; sources, targets and engram layers above go");
  command->add_option("--experts", options->reduction.experts, "Routed experts per layer");
  command->add_option("--engram-rows", options->reduction.engram_rows,
                      "Bucket size of the engram tables (default: at most 1 GB in all)");
  command->add_option("--seed", options->seed, "Same seed, same bytes")->capture_default_str();
  command->callback([options] {
    const InterruptGuard interrupt;
    const Status status = synthesize(*options, interrupt);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(interrupt.interrupted() ? kInterruptedExit : 1);
  });
}

}  // namespace cachalot
