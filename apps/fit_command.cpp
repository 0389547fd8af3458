#include "fit_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/memory_placement.h"
#include "base/thread_team.h"
#include "bench/machine.h"
#include "checkpoint/synth.h"
#include "engine/expert_profile.h"
#include "engine/gpu_placement.h"
#include "inspect/fit.h"
#include "inspect/gpu_fit.h"
#include "number_options.h"
#include "report.h"
#include "usage_error.h"

namespace cachalot {
namespace {

struct FitCommandOptions {
  std::string model;
  int64_t memory = 0;
  int64_t context = 0, sequences = 1;
  double disk_gigabytes_per_second = 0, memory_gigabytes_per_second = 0;
  int64_t gpu_memory = 0;
  double gpu_gigabytes_per_second = 0, bus_gigabytes_per_second = 0;
  std::string experts = "auto", expert_profile;
  int threads = 0;
  bool no_drafts = false, json = false;
};

// Leaves the rest of the system something to live on.
int64_t usable_memory() {
  const int64_t there = available_memory();
  return there - std::min<int64_t>(there / 20, int64_t{4} << 30);
}

std::string size_text(int64_t bytes) {
  const bool large = bytes >= 1'000'000'000;
  return fmt::format("{:.2f} {}", static_cast<double>(bytes) / (large ? 1e9 : 1e6),
                     large ? "GB" : "MB");
}

void measure(const FitCommandOptions& options, Isa isa, FitRequest& request) {
  if (::isatty(STDERR_FILENO)) report("measuring this machine ...");
  ThreadTeam team(options.threads);
  const bool bandwidth_given = request.memory_bytes_per_second > 0;
  const bench::Machine machine =
      bench::measure_machine(team, isa, {.reading = !bandwidth_given, .all_paths = false});
  if (::isatty(STDERR_FILENO)) report("\r\033[K");
  if (!bandwidth_given) request.memory_bytes_per_second = machine.read_bytes_per_second;
  request.operations_per_second = machine.peak(machine.matmul_path);
}

void print_parts(const Fit& fit) {
  fmt::print("{:<34} {:>10} {:>17}\n", "part", "size", "read per token");
  int64_t bytes = 0, read = 0;
  for (const FitPart& part : fit.parts) {
    fmt::print("{:<34} {:>10} {:>14.1f} MB\n", part.name, size_text(part.bytes),
               static_cast<double>(part.bytes_per_token) / 1e6);
    bytes += part.bytes;
    read += part.bytes_per_token;
  }
  fmt::print("{:<34} {:>10} {:>14.1f} MB\n\n", "checkpoint", size_text(bytes),
             static_cast<double>(read) / 1e6);
}

void print_placement(const Fit& fit, const FitRequest& request) {
  fmt::print("{:<34} {:>10}\n", "in memory", size_text(fit.in_memory()));
  fmt::print("  {:<32} {:>10}   all but experts and looked up rows\n", "always",
             size_text(fit.resident - fit.caches));
  fmt::print("  {:<32} {:>10}   {} sequence{} of {} positions\n", "caches", size_text(fit.caches),
             request.sequences, request.sequences == 1 ? "" : "s", request.context);
  fmt::print("  {:<32} {:>10}\n", "routed experts", size_text(fit.experts_in_memory));
  fmt::print("  {:<32} {:>10}\n", "embedding and engram rows", size_text(fit.rows_in_memory));
  fmt::print("{:<34} {:>10}\n", "left on disk", size_text(fit.experts_on_disk + fit.rows_on_disk));
  fmt::print("{:<34} {:>10}   weights are used where they lie, nothing is copied\n\n",
             "most while loading", size_text(fit.in_memory()));
}

// Ends a line on what a step reads; nothing where that is some rows alone.
std::string disk_text(double bytes, const FitRequest& request) {
  if (bytes < 1e6) return {};
  const std::string text = fmt::format(", {:.2f} GB from disk", bytes / 1e9);
  if (request.disk_bytes_per_second == 0) return text;
  return text + fmt::format(" at {:.1f} GB/s", request.disk_bytes_per_second / 1e9);
}

void print_speed(const Fit& fit, const FitRequest& request) {
  fmt::print("a step of {} sequence{} reads {:.2f} GB from memory at {:.1f} GB/s",
             request.sequences, request.sequences == 1 ? "" : "s", fit.bytes_from_memory / 1e9,
             request.memory_bytes_per_second / 1e9);
  fmt::print("{}\n", disk_text(fit.bytes_from_disk, request));
  if (fit.tokens_per_second > 0) {
    fmt::print(
        "decode: at most {:.2f} tokens/s, every expert as likely as another (real routing "
        "repeats itself, so a cache of experts does better)\n",
        fit.tokens_per_second);
    if (fit.bytes_from_disk > 0 && request.disk_bytes_per_second == 0) {
      fmt::print(
          "        without the {:.1f} kB of rows from disk: give its speed with --disk GB/s\n",
          fit.bytes_from_disk / 1e3);
    }
  } else {
    fmt::print("decode: give the disk's speed with --disk GB/s to have an estimate\n");
  }
  if (fit.prompt_tokens_per_second > 0) {
    fmt::print("prompts: at most {:.1f} tokens/s, at this machine's peak of {:.2f} TFLOP/s\n",
               fit.prompt_tokens_per_second, request.operations_per_second / 1e12);
  }
}

// The options of `run` that make it so.
void print_advice(const Fit& fit, const std::optional<GpuFit>& gpu,
                  const FitCommandOptions& options, const FitRequest& request) {
  std::string flags;
  if (gpu) flags += fmt::format(" --device cuda --gpu-memory {}", options.gpu_memory);
  if (gpu && options.experts != "auto") flags += " --experts " + options.experts;
  const HostMemory& host = gpu ? gpu->host : fit;
  if (host.experts_on_disk > 0) {
    const int64_t room = std::max(host.experts_in_memory, host.least_memory - host.resident);
    flags += fmt::format(" --expert-cache {}", room);
  }
  if (options.context > 0) flags += fmt::format(" --ctx {}", request.context);
  if (options.no_drafts) flags += " --drafts off";
  if (!flags.empty()) fmt::print("run with{}\n", flags);
}

// A GPU's part and the host's.
void print_gpu(const GpuFit& fit, const FitCommandOptions& options, const FitRequest& request) {
  fmt::print("{:<34} {:>10} of {}\n", "on a GPU",
             size_text(fit.placement.bytes + fit.caches + fit.workspace),
             size_text(options.gpu_memory));
  fmt::print("  {:<32} {:>10}   {}\n", "weights", size_text(fit.placement.bytes),
             text_of(fit.placement));
  fmt::print("  {:<32} {:>10}\n", "caches", size_text(fit.caches));
  fmt::print("  {:<32} {:>10}   steps of up to {} tokens, vision included\n", "workspace",
             size_text(fit.workspace), GpuFitRequest().chunk);
  fmt::print("{:.1f} % of the tokens' choices are experts there{}\n", 100 * fit.choices_on_gpu,
             options.expert_profile.empty() ? ", if every expert is as likely as another" : "");
  const bool streamed = options.experts == "stream";
  fmt::print("{:<34} {:>10}\n", "experts left to the host", size_text(fit.experts_of_host));
  fmt::print("{:<34} {:>10} of {}\n", "in the host's memory", size_text(fit.host.in_memory()),
             size_text(request.memory));
  fmt::print("{:<34} {:>10}\n", "left on disk",
             size_text(fit.host.experts_on_disk + fit.host.rows_on_disk));
  fmt::print("a step reads {:.2f} GB from the GPU's memory, {:.2f} GB from the host's{}{}\n",
             fit.bytes_from_gpu / 1e9, fit.bytes_from_host / 1e9, streamed ? ", over the bus" : "",
             disk_text(fit.bytes_from_disk, request));
  if (fit.host.experts_on_disk > 0 && request.disk_bytes_per_second == 0) {
    fmt::print("decode: give the disk's speed with --disk GB/s to have an estimate\n");
  } else if (fit.tokens_per_second > 0) {
    fmt::print("decode: at most {:.2f} tokens/s with {:.0f} GB/s there and {:.1f} GB/s {}\n",
               fit.tokens_per_second, options.gpu_gigabytes_per_second,
               streamed ? options.bus_gigabytes_per_second : request.memory_bytes_per_second / 1e9,
               streamed ? "over the bus" : "here");
  } else {
    fmt::print("decode: give the GPU's bandwidth with --gpu-bandwidth GB/s{} to have an estimate\n",
               streamed ? " and the bus's with --bus-bandwidth" : "");
  }
}

nlohmann::ordered_json gpu_json(const GpuFit& fit) {
  return {{"weights", fit.placement.bytes},
          {"layers_with_experts", fit.layers_on_gpu()},
          {"experts", fit.placement.experts_placed()},
          {"experts_in_all", fit.placement.experts_in_all()},
          {"choices", fit.choices_on_gpu},
          {"caches", fit.caches},
          {"workspace", fit.workspace},
          {"experts_of_host", fit.experts_of_host},
          {"bytes_from_gpu_per_step", fit.bytes_from_gpu},
          {"host_fits", fit.host.fits},
          {"host_least_memory", fit.host.least_memory},
          {"host_in_memory", fit.host.in_memory()},
          {"host_experts_on_disk", fit.host.experts_on_disk},
          {"host_rows_on_disk", fit.host.rows_on_disk},
          {"bytes_from_host_per_step", fit.bytes_from_host},
          {"bytes_from_disk_per_step", fit.bytes_from_disk},
          {"tokens_per_second", fit.tokens_per_second}};
}

void print_json(const Fit& fit, const FitRequest& request, const std::optional<GpuFit>& gpu) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const FitPart& part : fit.parts) {
    parts.push_back(
        {{"name", part.name}, {"bytes", part.bytes}, {"bytes_per_token", part.bytes_per_token}});
  }
  nlohmann::ordered_json all = {{"parts", parts},
                                {"memory", request.memory},
                                {"context", request.context},
                                {"sequences", request.sequences},
                                {"fits", fit.fits},
                                {"least_memory", fit.least_memory},
                                {"in_memory", fit.in_memory()},
                                {"caches", fit.caches},
                                {"experts_in_memory", fit.experts_in_memory},
                                {"experts_on_disk", fit.experts_on_disk},
                                {"rows_in_memory", fit.rows_in_memory},
                                {"rows_on_disk", fit.rows_on_disk},
                                {"bytes_from_memory_per_step", fit.bytes_from_memory},
                                {"bytes_from_disk_per_step", fit.bytes_from_disk},
                                {"memory_bytes_per_second", request.memory_bytes_per_second},
                                {"disk_bytes_per_second", request.disk_bytes_per_second},
                                {"operations_per_second", request.operations_per_second},
                                {"tokens_per_second", fit.tokens_per_second},
                                {"prompt_tokens_per_second", fit.prompt_tokens_per_second}};
  if (gpu) all["gpu"] = gpu_json(*gpu);
  fmt::print("{}\n", all.dump(2));
}

GpuFitRequest gpu_request(const FitCommandOptions& options) {
  GpuFitRequest gpu{.memory = options.gpu_memory,
                    .bytes_per_second = options.gpu_gigabytes_per_second * 1e9,
                    .bus_bytes_per_second = options.bus_gigabytes_per_second * 1e9};
  if (options.experts == "gpu") gpu.experts_on = ExpertsOn::gpu;
  if (options.experts == "cpu") gpu.experts_on = ExpertsOn::cpu;
  if (options.experts == "stream") gpu.experts_on = ExpertsOn::streamed;
  return gpu;
}

Status run_command(const FitCommandOptions& options) {
  if (options.gpu_memory == 0) {
    const auto needs_gpu = [](std::string_view option, bool said) {
      if (said) usage_error("{}: expected --gpu-memory SIZE with it", option);
    };
    needs_gpu("--experts", options.experts != "auto");
    needs_gpu("--expert-profile", !options.expert_profile.empty());
    needs_gpu("--gpu-bandwidth", options.gpu_gigabytes_per_second > 0);
    needs_gpu("--bus-bandwidth", options.bus_gigabytes_per_second > 0);
  }
  if (options.bus_gigabytes_per_second > 0 && options.experts != "stream") {
    usage_error("--bus-bandwidth: expected --experts stream with it");
  }
  CACHALOT_TRY(const ModelConfig config, config_at(options.model));
  if (options.context > config.max_position_embeddings) {
    usage_error("--context: the model takes at most {} positions, found {}",
                config.max_position_embeddings, options.context);
  }
  FitRequest request;
  request.memory = options.memory > 0 ? options.memory : usable_memory();
  request.context = options.context > 0 ? options.context
                                        : std::min<int64_t>(32768, config.max_position_embeddings);
  request.sequences = options.sequences;
  request.drafts = config.has_drafts() && !options.no_drafts;
  request.disk_bytes_per_second = options.disk_gigabytes_per_second * 1e9;
  request.memory_bytes_per_second = options.memory_gigabytes_per_second * 1e9;
  CACHALOT_TRY(const Isa isa, isa_from_environment());
  GpuFitRequest gpu_wanted = gpu_request(options);
  ExpertProfile profile;
  if (!options.expert_profile.empty()) {
    CACHALOT_TRY(profile, read_expert_profile(options.expert_profile, config));
    gpu_wanted.profile = &profile;
  }
  // A GPU that is too small is told without measuring.
  std::optional<GpuFit> gpu;
  if (options.gpu_memory > 0) {
    CACHALOT_TRY(gpu, fit_gpu(config, request, gpu_wanted));
  }
  measure(options, isa, request);
  const Fit result = fit(config, request);
  if (gpu) {
    estimate_speed(*gpu, config, request, gpu_wanted);
    if (options.experts == "stream" && !gpu->host.fits) {
      return fail(
          "it does not fit: streamed experts lie in the host's memory, {} of them, {} are there; "
          "leave more to the GPU with --gpu-memory, or use --experts auto",
          size_text(gpu->experts_of_host), size_text(request.memory));
    }
  }
  if (options.json) {
    print_json(result, request, gpu);
  } else {
    print_parts(result);
  }
  // A GPU takes what the host need not hold.
  if (gpu && !gpu->host.fits) {
    return fail(
        "it does not fit: {} of the host's memory are the least beside the GPU, {} are there; "
        "leave more to the GPU with --gpu-memory, or the drafts out with --no-drafts",
        size_text(gpu->host.least_memory), size_text(request.memory));
  }
  if (!result.fits && !gpu) {
    return fail(
        "it does not fit: {} of memory are the least for {} sequence{} of {} positions, {} are "
        "there; ask for less --context or fewer --sequences, or leave the drafts out with "
        "--no-drafts",
        size_text(result.least_memory), request.sequences, request.sequences == 1 ? "" : "s",
        request.context, size_text(request.memory));
  }
  if (options.json) return {};
  if (gpu) {
    print_gpu(*gpu, options, request);
  } else {
    print_placement(result, request);
    print_speed(result, request);
  }
  print_advice(result, gpu, options, request);
  return {};
}

}  // namespace

void add_fit_command(CLI::App& app) {
  auto options = std::make_shared<FitCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "fit", "What a model needs of this machine and how fast it can be, before loading it");
  command->add_option("model", options->model, "Checkpoint folder or configuration file")
      ->required();
  command
      ->add_option("--ram", options->memory,
                   "Memory to use, as 96GiB (default, or 0: what is free here, less a reserve)")
      ->transform(size_in_bytes());
  command->add_option("--context", options->context, "Positions per sequence (default: 32768)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--sequences", options->sequences, "Sequences at a time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command
      ->add_option("--disk", options->disk_gigabytes_per_second,
                   "What the disk reads at random in pieces of 19 MB, GB/s")
      ->check(number_from(0.001, 1000));
  command
      ->add_option("--bandwidth", options->memory_gigabytes_per_second,
                   "What the memory reads, GB/s (default: measured)")
      ->check(number_from(0.1, 100000));
  command
      ->add_option("--gpu-memory", options->gpu_memory,
                   "A GPU beside this machine that holds so much, as 141GB: what lies there")
      ->transform(size_in_bytes());
  command
      ->add_option("--gpu-bandwidth", options->gpu_gigabytes_per_second,
                   "What that GPU's memory reads, GB/s")
      ->check(number_from(0.1, 100000));
  command
      ->add_option("--experts", options->experts,
                   "Where experts lie and are computed, as in run: auto, gpu, cpu or stream")
      ->check(CLI::IsMember({"auto", "cpu", "gpu", "stream"}))
      ->capture_default_str();
  command->add_option("--expert-profile", options->expert_profile,
                      "How often experts are chosen, as run wrote it: those go to the GPU first");
  command
      ->add_option("--bus-bandwidth", options->bus_gigabytes_per_second,
                   "What the GPU reads of the host's memory, GB/s, for --experts stream")
      ->check(number_from(0.1, 100000));
  command->add_option("--threads", options->threads, "CPU threads (0: one per available CPU)")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--no-drafts", options->no_drafts, "Without the draft head");
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options] {
    const Status status = run_command(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
