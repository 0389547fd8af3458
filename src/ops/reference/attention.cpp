#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/parts.h"
#include "ops/reference/queue.h"
#include "tensor/block_quantizers.h"

namespace cachalot::reference {

void prepare_query(Queue&, const PrepareQueryArgs& args) {
  check_shapes(args);
  const int64_t head_dim = args.kv.extent(1);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int32_t position = args.rows.positions.data[t];
    if (args.q.present())
      for (int64_t h = 0; h < args.q.extent(1); ++h) {
        bf16* head = args.q.row(t) + h * head_dim;
        Floats q = to_floats(head, head_dim);
        rotate(q.data(), head_dim, args.frequencies, position, Turn::forward);
        store_bf16(q.data(), head_dim, head);
      }
    Floats kv = to_floats(args.kv.row(t), head_dim);
    rotate(kv.data(), head_dim, args.frequencies, position, Turn::forward);
    quantize_window_row(kv.data(), head_dim, args.window_rows.row(t));
  }
}

std::vector<Floats> attended_keys(const SparseAttentionArgs& args, int64_t t) {
  const int64_t head_dim = args.q.extent(2);
  const int64_t position = args.rows.positions.data[t];
  const int32_t slot = args.rows.slots.data[t];
  std::vector<Floats> keys;
  const int64_t start = args.rows.start_of(t), ring_rows = args.ring.extent(1);
  // A draft block is seen whole, the window before it in full.
  const int64_t reach = args.block > 0 ? start - args.window : position - args.window + 1;
  const int64_t held = args.window_starts.present() ? args.window_starts.data[t] : 0;
  const int64_t last = args.block > 0 ? start + args.block - 1 : position;
  for (int64_t p = std::max({int64_t{0}, reach, held}); p <= last; ++p) {
    const uint8_t* row = p >= start ? args.window_rows.row(args.rows.first_rows.data[t] + p - start)
                                    : args.ring.row(slot) + p % ring_rows * args.ring.extent(2);
    dequantize_window_row(row, head_dim, keys.emplace_back(head_dim).data());
  }
  if (args.chosen.absent()) return keys;
  for (int64_t i = 0; i < args.chosen.extent(1) && args.chosen.row(t)[i] >= 0; ++i)
    dequantize_latent_row(args.latents.row(slot, args.chosen.row(t)[i]), head_dim,
                          keys.emplace_back(head_dim).data());
  return keys;
}

float sink_share(const SparseAttentionArgs& args, int64_t t, int64_t h,
                 const std::vector<Floats>& keys) {
  const int64_t head_dim = args.q.extent(2);
  const Floats q = to_floats(args.q.row(t) + h * head_dim, head_dim);
  double others = 0;
  for (const Floats& key : keys)
    others += std::exp(static_cast<double>(dot(q.data(), key.data(), head_dim)) * args.scale -
                       static_cast<double>(args.sink.data[h]));
  return static_cast<float>(1 / (1 + others));
}

namespace {

// One head over the keys; the sink joins the denominator only.
Floats attend(const Floats& q, const std::vector<Floats>& keys, float sink, float scale) {
  const int64_t head_dim = static_cast<int64_t>(q.size());
  Floats out(head_dim), weights;
  for (const Floats& key : keys) weights.push_back(dot(q.data(), key.data(), head_dim) * scale);
  if (keys.empty()) return out;
  const float largest = *std::max_element(weights.begin(), weights.end());
  double denominator = std::exp(sink - largest);
  std::vector<double> sums(head_dim);
  for (size_t k = 0; k < keys.size(); ++k) {
    const float e = std::exp(weights[k] - largest);
    denominator += e;
    for (int64_t i = 0; i < head_dim; ++i)
      sums[i] += static_cast<double>(round_to_bf16(e)) * keys[k][i];
  }
  for (int64_t i = 0; i < head_dim; ++i)
    out[i] = round_to_bf16(static_cast<float>(sums[i]) / static_cast<float>(denominator));
  return out;
}

}  // namespace

void sparse_attention(Queue&, const SparseAttentionArgs& args) {
  check_shapes(args);
  const int64_t heads = args.q.extent(1), head_dim = args.q.extent(2);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const std::vector<Floats> keys = attended_keys(args, t);
    for (int64_t h = 0; h < heads; ++h) {
      const Floats q = to_floats(args.q.row(t) + h * head_dim, head_dim);
      Floats o = attend(q, keys, args.sink.data[h], args.scale);
      rotate(o.data(), head_dim, args.frequencies, args.rows.positions.data[t], Turn::back);
      store_bf16(o.data(), head_dim, args.o.row(t) + h * head_dim);
    }
  }
}

// Rows are written in order of position, so of those that share a ring row the last one stays.
void write_window(Queue&, const WriteWindowArgs& args) {
  check_shapes(args);
  const int64_t ring_rows = args.ring.extent(1), row_bytes = args.ring.extent(2);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    uint8_t* ring = args.ring.row(args.rows.slots.data[t]);
    std::copy_n(args.window_rows.row(t), row_bytes,
                ring + args.rows.positions.data[t] % ring_rows * row_bytes);
  }
}

}  // namespace cachalot::reference
