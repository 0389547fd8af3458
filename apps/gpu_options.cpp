#include "gpu_options.h"

#include <unistd.h>

#include "backend/cuda/queue.h"
#include "number_options.h"
#include "report.h"
#include "usage_error.h"

namespace cachalot {
namespace {

void show_copy(int64_t done, int64_t all) {
  report("\rcopying weights to the GPU {:.1f} of {:.1f} GB", static_cast<double>(done) / 1e9,
         static_cast<double>(all) / 1e9);
  if (done == all) report("\r\033[K");
}

// The option that keeps an engine off a GPU; empty: none.
std::string what_only_a_cpu_computes(const EngineOptions& engine) {
  if (engine.backend != Backend::cpu) return "--backend";
  if (engine.expert_input != ExpertInput::fp8) return "--activations int8";
  return engine.watchable ? "--explore" : "";
}

}  // namespace

void add_gpu_options(CLI::App& command, GpuChoice& options) {
  constexpr const char* kGroup = "Engine";
  command
      .add_option(
          "--device", options.device,
          "cuda (an NVIDIA Hopper GPU, with the CPU for what does not fit on it); cpu; auto "
          "(cuda where there is one)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option(
          "--experts", options.experts,
          "Where experts lie and are computed, with --device cuda: gpu; cpu; auto (as many as fit "
          "on the GPU, those of --expert-profile first, the CPU computes the others); stream (as "
          "many as fit, the GPU reads the others from the host's memory)")
      ->check(CLI::IsMember({"auto", "cpu", "gpu", "stream"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--gpu-memory", options.memory,
                  "What the model may take of the GPU's memory, 100GB or 80GiB (default: what is "
                  "free)")
      ->transform(size_in_bytes())
      ->group(kGroup);
}

void apply_gpu_options(const GpuChoice& options, EngineOptions& engine) {
  const bool experts_there = options.experts == "gpu" || options.experts == "stream";
  const std::string needs_gpu = experts_there        ? "--experts " + options.experts
                                : options.memory > 0 ? "--gpu-memory"
                                                     : "";
  if (options.device == "cpu") {
    if (!needs_gpu.empty())
      usage_error("{}: expected --device cuda with it, found --device cpu", needs_gpu);
    return;
  }
  if (options.asked_for() && engine.backend != Backend::cpu) {
    usage_error("--device cuda: expected --backend cpu or none with it");
  }
  if (!options.asked_for()) {
    const std::string on_cpu = what_only_a_cpu_computes(engine);
    if (!on_cpu.empty() && needs_gpu.empty()) return;
    if (!cuda::find_device()) {
      if (needs_gpu.empty()) return;
      usage_error(
          "{}: expected an NVIDIA Hopper GPU in this machine, found none; without it the "
          "CPU computes everything",
          needs_gpu);
    }
    if (!on_cpu.empty()) {
      usage_error("{}: expected no {} with it, which the CPU computes alone", needs_gpu, on_cpu);
    }
  }
  engine.backend = Backend::cuda;
  engine.gpu_memory = options.memory;
  if (options.experts == "gpu") engine.experts_on = ExpertsOn::gpu;
  if (options.experts == "cpu") engine.experts_on = ExpertsOn::cpu;
  if (options.experts == "stream") engine.experts_on = ExpertsOn::streamed;
  if (::isatty(STDERR_FILENO)) engine.on_copy = show_copy;
}

}  // namespace cachalot
