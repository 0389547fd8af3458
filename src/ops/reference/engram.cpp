#include "ops/reference/math.h"
#include "ops/reference/parts.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {
namespace {

// The classes n-grams ending at `position` see, lookback 0 first (spec: model, 9.4).
std::vector<int64_t> visible_classes(const EngramHashArgs& args, int32_t slot, int64_t position) {
  std::vector<int64_t> out;
  bool blocked = false;
  for (int64_t s = 0; s < args.multipliers.extent(1); ++s) {
    blocked = blocked || position < s || *args.classes.row(slot, position - s) == kDeadClass;
    out.push_back(blocked ? args.pad_class : *args.classes.row(slot, position - s));
  }
  return out;
}

}  // namespace

void engram_hash(Queue&, const EngramHashArgs& args) {
  check_shapes(args);
  for (int64_t t = 0; t < args.rows.tokens(); ++t)
    *args.classes.row(args.rows.slots.data[t], args.rows.positions.data[t]) =
        args.image_index.data[t] >= 0 ? kDeadClass : args.token_map.data[args.ids.data[t]];
  const int64_t layers = args.primes.extent(0), columns = args.primes.extent(1);
  const int64_t largest = args.multipliers.extent(1), heads = columns / (largest - 1);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const std::vector<int64_t> classes =
        visible_classes(args, args.rows.slots.data[t], args.rows.positions.data[t]);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t* multipliers = args.multipliers.row(layer);
      int64_t hash = classes[0] * multipliers[0];
      for (int64_t n = 2; n <= largest; ++n) {
        hash ^= classes[n - 1] * multipliers[n - 1];
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t column = (n - 2) * heads + h;
          args.table_rows.row(t)[layer * columns + column] =
              hash % args.primes.row(layer)[column] + args.offsets.row(layer)[column];
        }
      }
    }
  }
}

void engram_gather(Queue&, const EngramGatherArgs& args) {
  check_shapes(args);
  const int64_t columns = args.table_rows.extent(2), width = args.codes.extent(1);
  for (int64_t t = 0; t < args.table_rows.extent(0); ++t)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t row = args.table_rows.row(t)[args.layer * columns + c];
      for (int64_t i = 0; i < width; ++i)
        args.values.row(t)[c * width + i] =
            to_bf16(e4m3_to_float(args.codes.row(row)[i]) *
                    e8m0_to_float(args.scales.row(row)[i / kScaleBlock]));
    }
}

float engram_gate(const EngramMixArgs& args, int64_t t, int64_t c) {
  if (args.image_index.data[t] >= 0) return 0;
  const int64_t dim = args.stream.extent(2);
  const Floats h = to_floats(args.stream.row(t) + c * dim, dim);
  const Floats key = to_floats(args.kv.row(t) + c * dim, dim);
  Floats gained(dim);
  for (int64_t i = 0; i < dim; ++i)
    gained[i] = h[i] * (to_float(args.q_weight.row(c)[i]) * to_float(args.k_weight.row(c)[i]));
  const float norm = std::sqrt(mean_square(h.data(), dim) + args.norm_eps) *
                     std::sqrt(mean_square(key.data(), dim) + args.norm_eps);
  const float dim_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const float match = dot(gained.data(), key.data(), dim) / norm * dim_scale;
  const float root = std::sqrt(std::fmax(std::fabs(match), 1e-6f));
  return sigmoid(std::copysign(root, match));
}

void engram_mix(Queue&, const EngramMixArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.stream.extent(0); ++t)
    for (int64_t c = 0; c < copies; ++c) {
      const float gate = engram_gate(args, t, c);
      const Floats h = to_floats(args.stream.row(t) + c * dim, dim);
      const Floats value = to_floats(args.kv.row(t) + copies * dim, dim);
      for (int64_t i = 0; i < dim; ++i)
        args.stream.row(t)[c * dim + i] = to_bf16(h[i] + gate * value[i]);
    }
}

}  // namespace cachalot::reference
