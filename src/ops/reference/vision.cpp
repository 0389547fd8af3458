#include <algorithm>
#include <cmath>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {
namespace {

// Turns one head's channels by its patch's place.
void turn(Floats& x, const ImageAttentionArgs& args, int64_t token) {
  const int64_t half = static_cast<int64_t>(x.size()) / 2, pairs = half / 2;
  const auto row = static_cast<float>(token / args.columns);
  const auto column = static_cast<float>(token % args.columns);
  for (int64_t i = 0; i < half; ++i) {
    const float angle =
        i < pairs ? row * args.frequencies.data[i] : column * args.frequencies.data[i - pairs];
    const float cosine = std::cos(angle), sine = std::sin(angle);
    const float a = x[i], b = x[half + i];
    x[i] = round_to_bf16(a * cosine - b * sine);
    x[half + i] = round_to_bf16(b * cosine + a * sine);
  }
}

// part 0: queries, 1: keys, 2: values
Floats channels(const ImageAttentionArgs& args, int64_t token, int64_t part, int64_t head) {
  const int64_t heads = args.o.extent(1), head_dim = args.o.extent(2);
  Floats x = to_floats(args.qkv.row(token) + (part * heads + head) * head_dim, head_dim);
  if (part < 2) turn(x, args, token);
  return x;
}

}  // namespace

void residual_norm(Queue&, const ResidualNormArgs& args) {
  check_shapes(args);
  const int64_t dim = args.stream.extent(1);
  for (int64_t t = 0; t < args.stream.extent(0); ++t) {
    Floats x = to_floats(args.stream.row(t), dim);
    if (args.update.present())
      for (int64_t i = 0; i < dim; ++i) x[i] += to_float(args.update.row(t)[i]);
    round_all_to_bf16(x);
    store_bf16(x.data(), dim, args.stream.row(t));
    rms_norm(x.data(), dim, args.norm.data, args.norm_eps);
    store_bf16(x.data(), dim, args.x.row(t));
  }
}

void image_attention(Queue&, const ImageAttentionArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.o.extent(0), head_dim = args.o.extent(2);
  for (int64_t head = 0; head < args.o.extent(1); ++head) {
    std::vector<Floats> keys, values;
    for (int64_t k = 0; k < tokens; ++k) {
      keys.push_back(channels(args, k, 1, head));
      values.push_back(channels(args, k, 2, head));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const Floats q = channels(args, t, 0, head);
      Floats p(tokens);
      for (int64_t k = 0; k < tokens; ++k)
        p[k] = dot(q.data(), keys[k].data(), head_dim) * args.scale;
      const float top = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (float& value : p) sum += value = std::exp(value - top);
      for (int64_t i = 0; i < head_dim; ++i) {
        double out = 0;
        for (int64_t k = 0; k < tokens; ++k) out += double{p[k]} * values[k][i];
        args.o.row(t)[head * head_dim + i] = to_bf16(static_cast<float>(out / sum));
      }
    }
  }
}

void gated_unit(Queue&, const GatedUnitArgs& args) {
  check_shapes(args);
  const int64_t width = args.h.extent(1);
  for (int64_t t = 0; t < args.h.extent(0); ++t) {
    const bf16* gate = args.gate_up.row(t);
    for (int64_t i = 0; i < width; ++i)
      args.h.row(t)[i] =
          to_bf16(round_to_bf16(silu(to_float(gate[i]))) * to_float(gate[width + i]));
  }
}

void unfold_cells(Queue&, const UnfoldCellsArgs& args) {
  check_shapes(args);
  const int64_t dim = args.x.extent(1), ratio = args.ratio;
  const int64_t rows = args.x.extent(0) / args.columns;
  const int64_t cell_columns = (args.columns + ratio - 1) / ratio;
  for (int64_t cell = 0; cell < args.cells.extent(0); ++cell)
    for (int64_t i = 0; i < dim * ratio * ratio; ++i) {
      const int64_t channel = i / (ratio * ratio), dy = i / ratio % ratio, dx = i % ratio;
      const int64_t row = cell / cell_columns * ratio + dy;
      const int64_t column = cell % cell_columns * ratio + dx;
      const bool inside = row < rows && column < args.columns;
      args.cells.row(cell)[i] = inside ? args.x.row(row * args.columns + column)[channel] : bf16{};
    }
}

void gelu(Queue&, const GeluArgs& args) {
  check_shapes(args);
  for (int64_t i = 0; i < args.x.elements(); ++i) {
    const float x = to_float(args.x.data[i]);
    args.x.data[i] = to_bf16(x * 0.5f * (1 + std::erf(x / std::sqrt(2.0f))));
  }
}

}  // namespace cachalot::reference
