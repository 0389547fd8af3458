#include "bench/picture.h"

#include <algorithm>
#include <map>
#include <optional>

#include "bench/planned_rows.h"
#include "bench/random_bytes.h"
#include "bench/timer.h"
#include "model/queues.h"
#include "model/vision_tower.h"

namespace cachalot::bench {
namespace {

// As the released model sees 544 x 544 pixels: the fewest it looks at.
constexpr PatchGrid kGrid{.rows = 39, .columns = 39};
constexpr int64_t kMostRepetitions = 50;

using Names = std::map<const void*, std::string>;

Names names_of(const VisionWeights& weights) {
  const VisionBlockWeights& block = weights.blocks.front();
  return {{weights.patch_embed.weight.values.data, "patch_embed"},
          {block.wqkv.weight.values.data, "vision_wqkv"},
          {block.wo.weight.values.data, "vision_wo"},
          {block.w1.values.data, "vision_w1"},
          {block.w2.values.data, "vision_w2"},
          {weights.aligner_w1.weight.values.data, "aligner_w1"},
          {weights.aligner_w2.weight.values.data, "aligner_w2"}};
}

// One block stands for all. Absent: a model without a vision tower.
std::optional<VisionWeights> one_block(const BenchModel& model) {
  auto weights = VisionWeights::bind(*model.checkpoint);
  if (!weights) return std::nullopt;
  weights->blocks.resize(1);
  return std::move(*weights);
}

std::string name_of(std::string_view operation, const void* weight, const Names& names,
                    const ModelConfig& config) {
  const auto named = names.find(weight);
  const int64_t ratio = config.vision_downsample_ratio;
  const int64_t tokens = kGrid.cell_rows(ratio) * (kGrid.cell_columns(ratio) + 1) + 2;
  return fmt::format("{}{}/picture/tokens{}", operation,
                     named == names.end() ? "" : "." + named->second, tokens);
}

// Adds a repetition's calls to the rows, in the order of their first call.
void add_records(const std::vector<timed::Record>& records, const Names& names,
                 const ModelConfig& config, std::vector<Row>& rows,
                 std::map<std::string, std::vector<double>>& seconds) {
  std::map<std::string, double> sums;
  std::map<std::string, int64_t> counts;
  for (const timed::Record& record : records) {
    const std::string name = name_of(record.operation, record.weight, names, config);
    sums[name] += record.seconds;
    ++counts[name];
    const bool there = std::ranges::any_of(rows, [&](const Row& row) { return row.name == name; });
    if (there) continue;
    rows.push_back({.name = name,
                    .shape = record.shapes,
                    .bytes = static_cast<double>(record.cost.bytes()),
                    .flops = static_cast<double>(record.cost.flops)});
  }
  for (const auto& [name, sum] : sums) {
    seconds[name].push_back(sum / static_cast<double>(counts[name]));
  }
}

void finish(Row& row, std::vector<double> seconds, const Machine& machine) {
  std::ranges::sort(seconds);
  row.seconds = seconds[seconds.size() / 2];
  row.best_seconds = seconds.front();
  row.repetitions = std::ssize(seconds);
  Floor floor(machine);
  floor.add(
      row.name.substr(0, row.name.find_first_of("./")),
      {.bytes_read = static_cast<int64_t>(row.bytes), .flops = static_cast<int64_t>(row.flops)});
  row.percent_of_limit = 100 * floor.seconds() / row.best_seconds;
  row.limit = floor.limit();
}

}  // namespace

std::vector<Row> picture_rows(const BenchModel& model, const Machine& machine, ThreadTeam& team,
                              Isa isa, const RepeatOptions& options) {
  const auto bound = one_block(model);
  if (!bound) return {};
  const VisionWeights& weights = *bound;
  const ModelConfig& config = model.checkpoint->config();
  std::vector<bf16> patches(static_cast<size_t>(kGrid.patches() * weights.patch_width));
  RandomWords random(3);
  for (bf16& value : patches) {
    value = to_bf16(static_cast<float>(random.below(2000)) / 1000.0f - 1.0f);
  }
  const View<const bf16> input(patches.data(), {kGrid.patches(), weights.patch_width});
  cpu::Queue cpu_queue(team, isa, Arena(plan_vision_workspace(config, weights, kGrid)));
  timed::Queue<cpu::Queue> queue(cpu_queue, options.clock);
  std::vector<Row> rows;
  std::map<std::string, std::vector<double>> seconds;
  const Timer timer;
  const int64_t wanted = options.repetitions > 0 ? options.repetitions : kMostRepetitions;
  for (int64_t done = 0; done < wanted; ++done) {
    if (options.repetitions == 0 && done >= 2 && timer.seconds() >= options.seconds) break;
    queue.clear(true);
    see(queue, config, weights, kGrid, input);
    queue.finish();
    queue.arena().release_to(0);
    add_records(queue.records(), names_of(weights), config, rows, seconds);
  }
  for (Row& row : rows) finish(row, seconds[row.name], machine);
  return rows;
}

std::vector<std::string> picture_row_names(const BenchModel& model) {
  const auto weights = one_block(model);
  if (!weights) return {};
  const ModelConfig& config = model.checkpoint->config();
  PlannedCalls calls;
  meta::Queue queue(Arena::planning(), calls);
  see(queue, config, *weights, kGrid, {nullptr, {kGrid.patches(), weights->patch_width}});
  std::vector<std::string> names;
  for (const PlannedCalls::Call& call : calls.calls()) {
    names.push_back(name_of(call.operation, call.weight, names_of(*weights), config));
  }
  return names;
}

}  // namespace cachalot::bench
