// The vision tower at the released sizes, all 32 blocks and the aligner, once, on a picture of as
// many tokens as a picture may have: at least half of what the processor can multiply. One thread
// and its processor time, so that others on the machine do not count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <random>

#include "base/clock.h"
#include "bench/machine.h"
#include "bench/table.h"
#include "model/queues.h"
#include "model/vision_tower.h"

namespace cachalot {
namespace {

constexpr PatchGrid kGrid{.rows = 42, .columns = 216};  // 14 x (72 + 1) + 2 = 1,024 tokens

class RandomWeights {
 public:
  View<const bf16> values(Shape shape, float deviation, float mean = 0) {
    std::vector<bf16>& values = kept_.emplace_back(static_cast<size_t>(shape.elements()));
    // Uniform, as wide as a normal distribution of that deviation.
    std::uniform_real_distribution<float> distribution(mean - deviation * std::sqrt(3.0f),
                                                       mean + deviation * std::sqrt(3.0f));
    for (bf16& value : values) value = to_bf16(distribution(random_));
    return {values.data(), shape};
  }
  BiasedMatrix matrix(int64_t rows, int64_t columns) {
    const float deviation = 1 / std::sqrt(static_cast<float>(columns));
    return {.weight = {.rows = rows,
                       .columns = columns,
                       .codes = {},
                       .scales = {},
                       .values = values({rows, columns}, deviation)},
            .bias = values({rows}, 0.1f)};
  }

 private:
  std::mt19937 random_{1};
  std::deque<std::vector<bf16>> kept_;
};

ModelConfig released_sizes() {
  ModelConfig config;
  config.dim = 5120;
  config.vision_n_layers = 32;
  config.vision_dim = 1024;
  config.vision_n_heads = 16;
  config.vision_inter_dim = 2816;
  config.vision_patch_size = 14;
  config.vision_downsample_ratio = 3;
  return config;
}

VisionWeights random_tower(const ModelConfig& config, RandomWeights& random) {
  constexpr int64_t kPatchWidth = 608;  // 14 x 14 x 3 in whole blocks of 32
  const int64_t dim = config.vision_dim;
  VisionWeights weights;
  weights.patch_width = kPatchWidth;
  weights.patch_embed = random.matrix(dim, kPatchWidth);
  for (int64_t i = 0; i < config.vision_n_layers; ++i) {
    weights.blocks.push_back({.attention_norm = random.values({dim}, 0.1f, 1),
                              .wqkv = random.matrix(3 * dim, dim),
                              .wo = random.matrix(dim, dim),
                              .mlp_norm = random.values({dim}, 0.1f, 1),
                              .w1 = random.matrix(2 * config.vision_inter_dim, dim).weight,
                              .w2 = random.matrix(dim, config.vision_inter_dim).weight});
  }
  weights.norm = random.values({dim}, 0.1f, 1);
  weights.aligner_w1 = random.matrix(config.dim, 9 * dim);
  weights.aligner_w2 = random.matrix(config.dim, config.dim);
  const int64_t head = dim / config.vision_n_heads;
  for (int64_t i = 0; i < head / 4; ++i)
    weights.frequencies.push_back(
        std::pow(10000.0f, -4.0f * static_cast<float>(i) / static_cast<float>(head)));
  return weights;
}

TEST(VisionTowerSpeed, ReachesHalfOfThePeakAtTheReleasedSizes) {
  const ModelConfig config = released_sizes();
  RandomWeights random;
  const VisionWeights weights = random_tower(config, random);
  const auto patches = random.values({kGrid.patches(), weights.patch_width}, 0.5f);
  ThreadTeam team(1);
  const Isa isa = best_isa();
  const bench::Machine machine = bench::measure_machine(team, isa, {.clock = processor_seconds});
  cpu::Queue cpu_queue(team, isa, Arena(plan_vision_workspace(config, weights, kGrid)));
  timed::Queue<cpu::Queue> queue(cpu_queue, processor_seconds);
  queue.clear(false);
  see(queue, config, weights, kGrid, patches);
  queue.finish();
  const double peak = machine.peak(std::string(bench::Machine::kVectorPath));
  double seconds = 0, flops = 0;
  std::map<std::string, std::pair<double, double>> operations;
  for (const timed::Record& record : queue.records()) {
    seconds += record.seconds;
    flops += static_cast<double>(record.cost.flops);
    auto& [time, work] = operations[std::string(record.operation)];
    time += record.seconds;
    work += static_cast<double>(record.cost.flops);
  }
  fmt::print("{}\n", bench::machine_text(machine));
  for (const auto& [name, sums] : operations) {
    fmt::print("{:16} {:7.2f} s {:8.1f} GFLOP/s {:5.1f} %\n", name, sums.first,
               sums.second / sums.first / 1e9, 100 * sums.second / sums.first / peak);
  }
  fmt::print("{:16} {:7.2f} s {:8.1f} GFLOP/s {:5.1f} %\n", "all", seconds, flops / seconds / 1e9,
             100 * flops / seconds / peak);
  EXPECT_GE(flops / seconds, 0.5 * peak);
}

}  // namespace
}  // namespace cachalot
