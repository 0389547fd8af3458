#include <vector>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"

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

const ExpertPointers* expert_table(Queue& queue, const MoeExpertsArgs& args) {
  std::vector<ExpertPointers> table;
  table.reserve(args.experts.size());
  for (const ExpertMatrices& expert : args.experts) {
    table.push_back({expert.w1.codes.data, expert.w1.scales.data, expert.w2.codes.data,
                     expert.w2.scales.data, expert.w3.codes.data, expert.w3.scales.data});
  }
  const void* key = key_of(table);
  void* kept = queue.kept(key);
  if (kept == nullptr) kept = queue.keep(key, table.data(), table.size() * sizeof(table[0]));
  return static_cast<const ExpertPointers*>(kept);
}

void moe_experts(Queue& queue, const MoeExpertsArgs& args) {
  check_shapes(args);
  if (args.x.extent(0) == 0) return;
  CACHALOT_CHECK(args.shared.w1.quantized(), "the shared expert's matrices are FP8");
  moe_experts_plain(queue, args);
}

}  // namespace cachalot::cuda
