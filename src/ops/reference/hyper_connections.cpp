#include "ops/reference/math.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {
namespace {

// comb [copies, copies] in place: softmax over each row, then alternating normalizations that end
// on a column one (spec: model, 3.1).
void sinkhorn(float* comb, int64_t copies, int64_t iterations, float eps) {
  const auto at = [&](int64_t j, int64_t k) -> float& { return comb[j * copies + k]; };
  const auto normalize_rows = [&] {
    for (int64_t j = 0; j < copies; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < copies; ++k) sum += at(j, k);
      for (int64_t k = 0; k < copies; ++k) at(j, k) /= sum + eps;
    }
  };
  const auto normalize_columns = [&] {
    for (int64_t k = 0; k < copies; ++k) {
      float sum = 0;
      for (int64_t j = 0; j < copies; ++j) sum += at(j, k);
      for (int64_t j = 0; j < copies; ++j) at(j, k) /= sum + eps;
    }
  };
  for (int64_t j = 0; j < copies; ++j) {
    float largest = at(j, 0), sum = 0;
    for (int64_t k = 1; k < copies; ++k) largest = std::fmax(largest, at(j, k));
    for (int64_t k = 0; k < copies; ++k) sum += at(j, k) = std::exp(at(j, k) - largest);
    for (int64_t k = 0; k < copies; ++k) at(j, k) = at(j, k) / sum + eps;
  }
  normalize_columns();
  for (int64_t i = 1; i < iterations; ++i) {
    normalize_rows();
    normalize_columns();
  }
}

void coefficients(const HyperCollapseArgs& args, int64_t t, const Floats& flat) {
  const int64_t m = args.pre_in.extent(1);
  const int64_t width = static_cast<int64_t>(flat.size());
  const float root = std::sqrt(mean_square(flat.data(), width) + args.norm_eps);
  Floats mixes((2 + m) * m);
  for (int64_t i = 0; i < (2 + m) * m; ++i) {
    const float scale = args.scale.data[i < m ? 0 : i < 2 * m ? 1 : 2];
    mixes[i] = dot(flat.data(), args.fn.row(i), width) / root * scale + args.base.data[i];
  }
  for (int64_t j = 0; j < m; ++j) {
    args.pre_out.row(t)[j] = sigmoid(mixes[j]) + args.hc_eps;
    args.post.row(t)[j] = 2 * sigmoid(mixes[m + j]);
  }
  float* comb = args.comb.row(t);
  for (int64_t i = 0; i < m * m; ++i) comb[i] = mixes[2 * m + i];
  sinkhorn(comb, m, args.sinkhorn_iterations, args.hc_eps);
}

}  // namespace

void hyper_collapse(Queue&, const HyperCollapseArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.stream.extent(0); ++t) {
    const Floats flat = to_floats(args.stream.row(t), copies * dim);
    Floats x(dim);
    for (int64_t i = 0; i < dim; ++i)
      for (int64_t j = 0; j < copies; ++j) x[i] += args.pre_in.row(t)[j] * flat[j * dim + i];
    round_all_to_bf16(x);
    if (args.norm.present()) rms_norm(x.data(), dim, args.norm.data, args.norm_eps);
    store_bf16(x.data(), dim, args.x.row(t));
    if (args.fn.present()) coefficients(args, t, flat);
  }
}

void hyper_expand(Queue&, const HyperExpandArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.stream.extent(0); ++t) {
    const Floats before = to_floats(args.stream.row(t), copies * dim);
    const Floats y = to_floats(args.y.row(t), dim);
    const float *post = args.post.row(t), *comb = args.comb.row(t);
    for (int64_t k = 0; k < copies; ++k)
      for (int64_t i = 0; i < dim; ++i) {
        float mixed = 0;
        for (int64_t j = 0; j < copies; ++j) mixed += comb[j * copies + k] * before[j * dim + i];
        args.stream.row(t)[k * dim + i] = to_bf16(post[k] * y[i] + mixed);
      }
  }
}

void draft_tap(Queue&, const DraftTapArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.stream.extent(0); ++t)
    for (int64_t i = 0; i < dim; ++i) {
      float sum = 0;
      for (int64_t c = 0; c < copies; ++c) sum += to_float(args.stream.row(t)[c * dim + i]);
      args.taps.row(t)[args.target * dim + i] = to_bf16(sum / static_cast<float>(copies));
    }
}

}  // namespace cachalot::reference
