// The experts of one layer at the released size, here and on ggml's CPU backend, in one run: same
// bits, same tokens, same experts, same threads, in turns. tools/compare_llama.sh builds it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>

#include "backend/cpu/queue.h"
#include "base/number_formats.h"
#include "bench/machine.h"
#include "bench/step_size.h"
#include "bench/table.h"
#include "bench/timer.h"
#include "expert_weights.h"
#include "ggml_experts.h"

namespace cachalot::compare {
namespace {

struct Options {
  LayerSize size;
  int threads = 0;
  std::string tokens = "1,8,512,2048", isa;
  double seconds = 3;  // for each program and number of tokens
  bool processor_time = false;

  SecondsClock clock() const { return processor_time ? processor_seconds : wall_seconds; }
};

class OurExperts {
 public:
  OurExperts(const ExpertWeights& weights, ThreadTeam& team, Isa isa, ExpertInput input)
      : weights_(weights), input_(input), queue_(team, isa, Arena(64)) {}

  void run(const Batch& batch) {
    const LayerSize& size = weights_.size();
    y_.resize(static_cast<size_t>(batch.tokens * size.dim));
    moe_experts(queue_, {.x = {batch.x.data(), {batch.tokens, size.dim}},
                         .ids = {batch.ids.data(), {batch.tokens, size.chosen}},
                         .weights = {batch.weights.data(), {batch.tokens, size.chosen}},
                         .experts = weights_.experts(),
                         .shared = weights_.shared(),
                         .input = input_,
                         .y = {y_.data(), {batch.tokens, size.dim}}});
  }
  const std::vector<bf16>& result() const { return y_; }

 private:
  const ExpertWeights& weights_;
  const ExpertInput input_;
  cpu::Queue queue_;
  std::vector<bf16> y_;
};

// |a - b| / |a|: both round, to different formats, so they differ by a few percent.
double relative_difference(const std::vector<bf16>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(to_float(a[i]) - b[i], 2);
    norm += std::pow(to_float(a[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// The fastest of runs over batches with different experts, so that they come from memory.
template <class Prepare, class Run>
double best_seconds(const std::vector<Batch>& batches, const Options& options, Prepare&& prepare,
                    Run&& run) {
  const double seconds = options.seconds;
  const bench::Timer all;
  double best = 1e9;
  for (size_t round = 0; round < 3 || all.seconds() < seconds; ++round) {
    const Batch& batch = batches[round % batches.size()];
    prepare(batch);
    const bench::Timer one(options.clock());
    run(batch);
    if (round > 0) best = std::min(best, one.seconds());
    if (round > 0 && all.seconds() > 3 * seconds) break;
  }
  return best;
}

class Comparison {
 public:
  explicit Comparison(const Options& options, Isa isa, std::vector<int64_t> tokens)
      : options_(options),
        tokens_(std::move(tokens)),
        isa_(isa),
        team_(options.threads),
        weights_(options.size) {}

  void run() {
    machine_ = bench::measure_machine(team_, isa_, {.clock = options_.clock()});
    fmt::print("{}\nexperts of a layer: {} of [{}, {}] x 3 in FP4, {} chosen, and one shared\n\n",
               bench::machine_text(machine_), options_.size.experts, options_.size.width,
               options_.size.dim, options_.size.chosen);
    fmt::print("{:<22} {:>7} {:>10} {:>8} {:>7} {:>9} {:>6}\n", "program", "tokens", "ms", "GB/s",
               "% read", "GFLOP/s", "% fma");
    for (int64_t tokens : tokens_) batches_[tokens] = batches(tokens);
    run_ours("cachalot", ExpertInput::fp8);
    run_ours("cachalot int8", ExpertInput::int8);
    GgmlExperts::silence();
    for (const std::string& layout : GgmlExperts::layouts()) run_peer(layout);
    print_ratios();
  }

 private:
  std::vector<Batch> batches(int64_t tokens) const {
    std::vector<Batch> out;
    for (uint64_t i = 0; i < (tokens > 64 ? 2u : 16u); ++i) {
      out.emplace_back(options_.size, tokens, 100 + i);
    }
    return out;
  }

  // Activations as the released model has them, or rounded to bytes as the peer's are.
  void run_ours(const std::string& program, ExpertInput input) {
    OurExperts ours(weights_, team_, isa_, input);
    for (int64_t tokens : tokens_) {
      ours.run(batches_[tokens].front());
      if (input == ExpertInput::fp8) results_[tokens] = ours.result();
      const double seconds = best_seconds(
          batches_[tokens], options_, [](const Batch&) {},
          [&](const Batch& batch) { ours.run(batch); });
      ours_[program][tokens] = seconds;
      print(program, tokens, seconds, "");
    }
  }

  void run_peer(const std::string& layout) {
    GgmlExperts peer(weights_, layout, team_.size());
    if (!peer.available()) return;
    for (int64_t tokens : tokens_) {
      peer.prepare(batches_[tokens].front());
      peer.run();
      const double off = relative_difference(results_[tokens], peer.result());
      const double seconds = best_seconds(
          batches_[tokens], options_, [&](const Batch& batch) { peer.prepare(batch); },
          [&](const Batch&) { peer.run(); });
      auto& best = peer_[tokens];
      if (best == 0 || seconds < best) best = seconds;
      print("ggml " + layout, tokens, seconds, fmt::format("  differs by {:.1f} %", 100 * off));
    }
    peer.pause();
  }

  void print(const std::string& program, int64_t tokens, double seconds, const std::string& more) {
    const LayerSize& size = options_.size;
    int64_t distinct = 0;
    for (const Batch& batch : batches_[tokens]) distinct = std::max(distinct, batch.distinct);
    const double bytes =
        static_cast<double>(distinct * weights_.expert_bytes() + weights_.shared_bytes());
    const double flops =
        2.0 * static_cast<double>(tokens * (size.chosen + 1) * 3 * size.dim * size.width);
    fmt::print("{:<22} {:>7} {:>10.3f} {:>8.2f} {:>7.1f} {:>9.1f} {:>6.1f}{}\n", program, tokens,
               seconds * 1e3, bytes / seconds / 1e9,
               100 * bytes / seconds / machine_.read_bytes_per_second, flops / seconds / 1e9,
               100 * flops / seconds / machine_.peak(bench::Machine::kVectorPath), more);
    std::fflush(stdout);
  }

  void print_ratios() {
    fmt::print("\ntimes as fast as ggml's best:\n");
    for (const auto& [program, seconds] : ours_) {
      fmt::print("{:<22}", program);
      for (int64_t tokens : tokens_) {
        fmt::print("  {} token{} {:.2f}", tokens, tokens == 1 ? "" : "s",
                   peer_[tokens] / seconds.at(tokens));
      }
      fmt::print("\n");
    }
  }

  Options options_;
  std::vector<int64_t> tokens_;
  Isa isa_;
  ThreadTeam team_;
  ExpertWeights weights_;
  bench::Machine machine_;
  std::map<int64_t, std::vector<Batch>> batches_;
  std::map<int64_t, std::vector<bf16>> results_;
  std::map<std::string, std::map<int64_t, double>> ours_;
  std::map<int64_t, double> peer_;
};

Status compare(const Options& options) {
  CACHALOT_TRY(auto tokens, bench::parse_sizes("--tokens", options.tokens, 1));
  if (options.processor_time && options.threads != 1) {
    return fail("--processor-time: expected --threads 1 with it, as it is the time of one thread");
  }
  CACHALOT_TRY(const Isa isa,
               options.isa.empty() ? isa_from_environment() : choose_isa(options.isa));
  Comparison(options, isa, std::move(tokens)).run();
  return {};
}

}  // namespace
}  // namespace cachalot::compare

int main(int argc, char** argv) {
  CLI::App app{"The experts of a layer here and in ggml, in one run.", "compare_llama"};
  cachalot::compare::Options options;
  app.add_option("--threads", options.threads, "0: one per available CPU")->capture_default_str();
  app.add_option("--experts", options.size.experts, "Routed experts, 18.8 MB each, twice in memory")
      ->check(CLI::Range(6, 384))
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Numbers of tokens")->capture_default_str();
  app.add_option("--seconds", options.seconds, "For each measurement")->capture_default_str();
  app.add_option("--isa", options.isa, "This project's instruction set (default: the best here)");
  app.add_flag("--processor-time", options.processor_time,
               "Time the processor runs the one thread: for a machine that others use");
  CLI11_PARSE(app, argc, argv);
  const cachalot::Status status = cachalot::compare::compare(options);
  if (status) return 0;
  fmt::print(stderr, "error: {}\n", status.error().message);
  return 1;
}
