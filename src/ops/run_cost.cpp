#include "ops/run_cost.h"

#include <algorithm>
#include <vector>

namespace cachalot {
namespace {

int64_t count_from_zero(View<const int32_t> values, int64_t row) {
  const int32_t* first = values.row(row);
  return std::count_if(first, first + values.extent(1), [](int32_t v) { return v >= 0; });
}

// Window positions row t sees.
int64_t window_keys(const SparseAttentionArgs& args, int64_t t) {
  const int64_t position = args.rows.positions.data[t];
  const int64_t start = args.rows.start_of(t);
  const int64_t first_allowed = args.window_starts.present() ? args.window_starts.data[t] : 0;
  if (args.block > 0) {
    return start - std::max({start - args.window, first_allowed, int64_t{0}}) + args.block;
  }
  return position + 1 - std::max({position + 1 - args.window, first_allowed, int64_t{0}});
}

// Entries row t scores.
int64_t scored_entries(const IndexSelectArgs& args, int64_t t) {
  const int64_t visible = (args.rows.positions.data[t] + 1) / args.ratio;
  if (args.candidate_use != CandidateUse::use) return visible;
  return std::min(visible,
                  count_from_zero(View<const int32_t>(args.candidates), t) * args.candidate_block);
}

}  // namespace

Cost run_cost_of(const SparseAttentionArgs& args) {
  SparseAttentionArgs seen = args;
  seen.window = seen.block = 0;
  seen.chosen.shape = args.chosen.present() ? Shape{args.rows.tokens(), 0} : Shape{};
  Cost cost = cost_of(seen);  // everything but the keys
  const int64_t heads = args.q.extent(1), head_dim = args.q.extent(2);
  cost.bytes_read += args.chosen.bytes();
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t window = window_keys(args, t);
    const int64_t chosen = args.chosen.present() ? count_from_zero(args.chosen, t) : 0;
    cost.bytes_read +=
        window * args.ring.extent(2) + (chosen > 0 ? chosen * args.latents.rows.extent(2) : 0);
    cost.flops += heads * (window + chosen) * (4 * head_dim + 3);
  }
  return cost;
}

Cost run_cost_of(const IndexSelectArgs& args) {
  IndexSelectArgs unmapped = args;
  unmapped.keys.table.shape = {args.keys.table.extent(0), 0};
  Cost cost = cost_of(unmapped);  // everything but the keys
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), width = args.q.extent(2);
  const int64_t row_bytes = args.keys.rows.extent(2);
  const int64_t per_score = heads * (2 * width + 3);
  int64_t entries = 0;  // of the sequence at hand
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t scored = scored_entries(args, t);
    cost.flops += scored * per_score;
    entries = std::max(entries, scored);
    const bool last = t + 1 == tokens || args.rows.first_rows.data[t + 1] == t + 1;
    if (!last) continue;
    cost.bytes_read += entries * row_bytes;
    entries = 0;
  }
  return cost;
}

Cost run_cost_of(const MoeExpertsArgs& args) {
  Cost cost = cost_of(args);
  const auto experts = static_cast<int64_t>(args.experts.size());
  if (experts == 0) return cost;
  std::vector<bool> used(args.experts.size());
  int64_t distinct = 0;
  for (int64_t i = 0; i < args.ids.elements(); ++i) {
    const auto id = static_cast<size_t>(args.ids.data[i]);
    if (!used[id]) ++distinct;
    used[id] = true;
  }
  const ExpertMatrices& expert = args.experts[0];
  const int64_t bytes = expert.w1.bytes() + expert.w2.bytes() + expert.w3.bytes();
  cost.bytes_read -= (std::min(args.ids.elements(), experts) - distinct) * bytes;
  return cost;
}

}  // namespace cachalot
