#include <vector>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"
#include "backend/cuda/moe_experts_token.h"

namespace cachalot::cuda {
namespace {

// What identifies a table: its contents, for the address of a list may come again with others, and
// a captured graph goes on reading the table it was captured with.
const void* key_of(const std::vector<ExpertPointers>& table) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  const auto* words = reinterpret_cast<const uint64_t*>(table.data());
  for (size_t i = 0; i < table.size() * sizeof(ExpertPointers) / sizeof(uint64_t); ++i) {
    hash = (hash ^ words[i]) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return reinterpret_cast<const void*>(hash);
}

}  // namespace

const ExpertPointers* expert_table(Queue& queue, const MoeExpertsArgs& args,
                                   const ExpertsElsewhere* elsewhere) {
  std::vector<ExpertPointers> table(args.experts.size());
  for (size_t id = 0; id < table.size(); ++id) {
    if (elsewhere != nullptr && elsewhere->experts[id]) continue;
    const ExpertMatrices& expert = args.experts[id];
    table[id] = {expert.w1.codes.data,  expert.w1.scales.data, expert.w2.codes.data,
                 expert.w2.scales.data, expert.w3.codes.data,  expert.w3.scales.data};
  }
  const void* key = key_of(table);
  void* kept = queue.kept(key);
  if (kept == nullptr) kept = queue.keep(key, table.data(), table.size() * sizeof(table[0]));
  return static_cast<const ExpertPointers*>(kept);
}

ExpertPointers shared_pointers(const MoeExpertsArgs& args) {
  const SharedExpertMatrices& shared = args.shared;
  const auto bytes = [](const View<const float>& scales) {
    return reinterpret_cast<const uint8_t*>(scales.data);
  };
  CACHALOT_CHECK(shared.w1.quantized(), "the shared expert's matrices are FP8");
  return {shared.w1.codes.data,    bytes(shared.w1.scales), shared.w2.codes.data,
          bytes(shared.w2.scales), shared.w3.codes.data,    bytes(shared.w3.scales)};
}

namespace {

void moe_experts_tiled(Queue& queue, const MoeExpertsArgs& args,
                       const ExpertsElsewhere* elsewhere) {
  const int64_t dim = args.x.extent(1), width = args.shared.w1.rows;
  const ExpertsPlan plan{.tokens = args.x.extent(0),
                         .choices = args.ids.extent(1),
                         .experts = static_cast<int64_t>(args.experts.size())};
  const int64_t rows = plan.row_capacity();
  Scratch scratch(queue);
  const ExpertsStep step{.plan = plan,
                         .dim = dim,
                         .width = width,
                         .limit = args.limit,
                         .experts = expert_table(queue, args, elsewhere),
                         .shared = shared_pointers(args),
                         .outputs_elsewhere = elsewhere ? elsewhere->outputs : nullptr,
                         .x = args.x.data,
                         .ids = args.ids.data,
                         .weights = args.weights.data,
                         .y = args.y.data,
                         .rounded = scratch.allocate<bf16>(rows * dim),
                         .row_weights = scratch.allocate<float>(rows),
                         .pair_rows = scratch.allocate<int32_t>(plan.pairs()),
                         .narrow_tiles = scratch.allocate<ExpertTile>(plan.most_narrow_tiles()),
                         .wide_tiles = scratch.allocate<ExpertTile>(plan.most_wide_tiles()),
                         .tile_counts = scratch.allocate<int32_t>(2),
                         .later_counts = plan.rows_later() ? scratch.allocate<int32_t>(2) : nullptr,
                         .hidden = scratch.allocate<bf16>(rows * width),
                         .outputs = scratch.allocate<bf16>(rows * dim)};
  experts_prepare(queue, step);
  experts_gate_up(queue, step);
  experts_down(queue, step);
  if (elsewhere != nullptr) elsewhere->await();
  experts_combine(queue, step);
}

void run(Queue& queue, const MoeExpertsArgs& args, const ExpertsElsewhere* elsewhere) {
  check_shapes(args);
  if (args.x.extent(0) == 0) return;
  if (experts_are_arranged(args.experts, args.shared)) {
    CACHALOT_CHECK(args.input == ExpertInput::fp8,
                   "int8 inputs: matrices of this shape lie as FP8 inputs want them");
    if (elsewhere == nullptr && moe_experts_token_takes(queue, args))
      return moe_experts_token(queue, args);
    moe_experts_tiled(queue, args, elsewhere);
  } else {
    moe_experts_plain(queue, args, elsewhere);
  }
}

}  // namespace

void moe_experts(Queue& queue, const MoeExpertsArgs& args) { run(queue, args, nullptr); }

void moe_experts(Queue& queue, const MoeExpertsArgs& args, const ExpertsElsewhere& elsewhere) {
  CACHALOT_CHECK(elsewhere.experts.size() == args.experts.size(), "{} experts of {}",
                 elsewhere.experts.size(), args.experts.size());
  run(queue, args, &elsewhere);
}

}  // namespace cachalot::cuda
