#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"
#include "tensor/block_quantizers.h"

namespace cachalot::reference {
namespace {

bool ends_group(int64_t position, int64_t ratio) { return (position + 1) % ratio == 0; }

// kv and gate of one position: this step's, or the kept row of an earlier step.
struct GroupRow {
  const float* kv;
  const float* gate;
};

GroupRow row_at(const CompressKvArgs& args, int64_t t, int64_t position) {
  const int64_t head_dim = args.kv.extent(1), start = args.rows.start_of(t);
  if (position >= start) {
    const int64_t row = args.rows.first_rows.data[t] + position - start;
    return {args.kv.row(row), args.gate.row(row)};
  }
  const int64_t kept = position % args.open_rows.extent(1);
  const float* row = args.open_rows.row(args.rows.slots.data[t]) + kept * 2 * head_dim;
  return {row, row + head_dim};
}

// The group that row t ends, pooled per channel by a softmax over its gates.
Floats pooled(const CompressKvArgs& args, int64_t t) {
  const int64_t head_dim = args.kv.extent(1), position = args.rows.positions.data[t];
  Floats out(head_dim);
  if (args.ratio == 1) {
    std::copy_n(args.kv.row(t), head_dim, out.begin());
    return out;
  }
  std::vector<GroupRow> group;
  for (int64_t p = position - args.ratio + 1; p <= position; ++p)
    group.push_back(row_at(args, t, p));
  for (int64_t i = 0; i < head_dim; ++i) {
    float largest = group[0].gate[i], sum = 0;
    for (const GroupRow& row : group) largest = std::fmax(largest, row.gate[i]);
    for (const GroupRow& row : group) sum += std::exp(row.gate[i] - largest);
    for (const GroupRow& row : group) out[i] += std::exp(row.gate[i] - largest) / sum * row.kv[i];
  }
  return out;
}

}  // namespace

void compress_kv(Queue&, const CompressKvArgs& args) {
  check_shapes(args);
  const int64_t head_dim = args.kv.extent(1);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t position = args.rows.positions.data[t];
    if (!ends_group(position, args.ratio)) continue;
    Floats latent = pooled(args, t);
    round_all_to_bf16(latent);
    rms_norm(latent.data(), head_dim, args.norm.data, args.norm_eps);
    store_bf16(latent.data(), head_dim, args.latent.row(t));
    const int64_t entry = position / args.ratio;
    rotate(latent.data(), head_dim, args.frequencies, entry * args.ratio, Turn::forward);
    quantize_latent_row(latent.data(), head_dim, args.latents.row(args.rows.slots.data[t], entry));
  }
  if (args.ratio == 1) return;
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t kept = args.rows.positions.data[t] % args.open_rows.extent(1);
    float* row = args.open_rows.row(args.rows.slots.data[t]) + kept * 2 * head_dim;
    std::copy_n(args.kv.row(t), head_dim, row);
    std::copy_n(args.gate.row(t), head_dim, row + head_dim);
  }
}

void index_keys(Queue&, const IndexKeysArgs& args) {
  check_shapes(args);
  const int64_t head_dim = args.latent.extent(1), width = args.weight.extent(0);
  std::vector<Floats> weight;
  for (int64_t r = 0; r < width; ++r) weight.push_back(to_floats(args.weight.row(r), head_dim));
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t position = args.rows.positions.data[t];
    if (!ends_group(position, args.ratio)) continue;
    const Floats latent = to_floats(args.latent.row(t), head_dim);
    Floats key(width);
    for (int64_t r = 0; r < width; ++r)
      key[r] = round_to_bf16(dot(latent.data(), weight[r].data(), head_dim));
    rms_norm(key.data(), width, args.norm.data, args.norm_eps);
    const int64_t entry = position / args.ratio;
    rotate(key.data(), width, args.frequencies, entry * args.ratio, Turn::forward);
    quantize_index_row(key.data(), width, args.keys.row(args.rows.slots.data[t], entry));
  }
}

}  // namespace cachalot::reference
