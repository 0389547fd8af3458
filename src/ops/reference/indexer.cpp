#include <algorithm>
#include <limits>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"
#include "tensor/block_quantizers.h"

namespace cachalot::reference {
namespace {

// The `count` best of `entries` by score, ties to the lower entry, ascending, then -1.
void choose(std::vector<int32_t> entries, const Floats& scores, int64_t count, int32_t* out) {
  std::stable_sort(entries.begin(), entries.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  entries.resize(std::min<size_t>(entries.size(), count));
  std::sort(entries.begin(), entries.end());
  std::fill_n(out, count, -1);
  std::copy(entries.begin(), entries.end(), out);
}

std::vector<int32_t> first_entries(int64_t count) {
  std::vector<int32_t> entries(count);
  for (int64_t i = 0; i < count; ++i) entries[i] = static_cast<int32_t>(i);
  return entries;
}

// score[j] = sum_h w[h] * max(iq[h] . key[j], 0) of the visible entries
Floats scores_of(const IndexSelectArgs& args, int64_t t, int64_t visible) {
  const int64_t heads = args.q.extent(1), width = args.q.extent(2);
  std::vector<Floats> queries;
  std::vector<uint8_t> packed(index_key_row_bytes(width));
  for (int64_t h = 0; h < heads; ++h) {
    Floats& q = queries.emplace_back(to_floats(args.q.row(t) + h * width, width));
    rotate(q.data(), width, args.frequencies, args.rows.positions.data[t], Turn::forward);
    quantize_index_row(q.data(), width, packed.data());
    dequantize_index_row(packed.data(), width, q.data());
  }
  Floats scores(visible), key(width);
  for (int64_t j = 0; j < visible; ++j) {
    dequantize_index_row(args.keys.row(args.rows.slots.data[t], j), width, key.data());
    for (int64_t h = 0; h < heads; ++h) {
      const float weight = round_to_bf16(to_float(args.weights.row(t)[h]) * args.weight_scale);
      scores[j] += weight * std::fmax(dot(queries[h].data(), key.data(), width), 0.0f);
    }
  }
  return scores;
}

void build_candidates(const IndexSelectArgs& args, int64_t t, const Floats& scores) {
  const int64_t visible = static_cast<int64_t>(scores.size()), size = args.candidate_block;
  Floats best((visible + size - 1) / size, -std::numeric_limits<float>::infinity());
  for (int64_t j = 0; j < visible; ++j) best[j / size] = std::fmax(best[j / size], scores[j]);
  if (visible > 0) best[(visible - 1) / size] = std::numeric_limits<float>::infinity();
  choose(first_entries(static_cast<int64_t>(best.size())), best, args.candidates.extent(1),
         args.candidates.row(t));
}

// The visible entries that lie in the row's candidate blocks.
std::vector<int32_t> candidate_entries(const IndexSelectArgs& args, int64_t t, int64_t visible) {
  const int32_t* blocks = args.candidates.row(t);
  std::vector<int32_t> entries = first_entries(visible);
  std::erase_if(entries, [&](int32_t entry) {
    const int32_t block = static_cast<int32_t>(entry / args.candidate_block);
    return std::find(blocks, blocks + args.candidates.extent(1), block) ==
           blocks + args.candidates.extent(1);
  });
  return entries;
}

}  // namespace

void index_select(Queue&, const IndexSelectArgs& args) {
  check_shapes(args);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t visible = (args.rows.positions.data[t] + int64_t{1}) / args.ratio;
    const Floats scores = scores_of(args, t, visible);
    if (args.candidate_use == CandidateUse::build) build_candidates(args, t, scores);
    choose(args.candidate_use == CandidateUse::use ? candidate_entries(args, t, visible)
                                                   : first_entries(visible),
           scores, args.chosen.extent(1), args.chosen.row(t));
  }
}

}  // namespace cachalot::reference
