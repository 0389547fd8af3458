// The operations of the vision tower (contracts: ops/vision.h).
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

int64_t rounded_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Where image_attention keeps what all threads read: cosines and sines per place along a side, and
// every head's rotated keys (in panels, transposed) and values (padded), in FP32.
class AttentionPlan {
 public:
  AttentionPlan(Queue& queue, const ImageAttentionArgs& args)
      : args_(args),
        tokens_(args.o.extent(0)),
        heads_(args.o.extent(1)),
        width_(args.o.extent(2)),
        places_(std::max(tokens_ / args.columns, args.columns)),
        panels_(divide_up(tokens_, kImagePanel)),
        value_width_(rounded_up(width_, kImagePanel)) {
    ScratchLayout layout;
    const size_t turns = layout.add(places_ * pairs() * 2, sizeof(float));
    const size_t keys = layout.add(heads_ * panels_ * kImagePanel * width_, sizeof(float));
    const size_t values = layout.add(heads_ * tokens_ * value_width_, sizeof(float));
    std::byte* shared = queue.scratch().reserve_shared(layout.bytes());
    turns_ = reinterpret_cast<float*>(shared + turns);
    keys_ = reinterpret_cast<float*>(shared + keys);
    values_ = reinterpret_cast<float*>(shared + values);
    for (int64_t place = 0; place < places_; ++place) {
      for (int64_t i = 0; i < pairs(); ++i) {
        const float angle = static_cast<float>(place) * args.frequencies.data[i];
        turns_[(place * pairs() + i) * 2] = std::cos(angle);
        turns_[(place * pairs() + i) * 2 + 1] = std::sin(angle);
      }
    }
  }

  int64_t panels() const { return panels_; }
  int64_t value_width() const { return value_width_; }
  const float* keys(int64_t head) const { return keys_ + head * panels_ * kImagePanel * width_; }
  const float* values(int64_t head) const { return values_ + head * tokens_ * value_width_; }

  // One panel of one head. Keys beyond the last are zero.
  void prepare(int64_t head, int64_t panel) const {
    float* out = keys_ + (head * panels_ + panel) * kImagePanel * width_;
    std::fill_n(out, kImagePanel * width_, 0.0f);
    for (int64_t k = 0; k < kImagePanel; ++k) {
      const int64_t token = panel * kImagePanel + k;
      if (token >= tokens_) return;
      turned(token, 1, head, out + k, kImagePanel);
      float* value = values_ + (head * tokens_ + token) * value_width_;
      const bf16* from = channels(token, 2, head);
      for (int64_t i = 0; i < width_; ++i) value[i] = to_float(from[i]);
      std::fill(value + width_, value + value_width_, 0.0f);
    }
  }

  // A query or key (part 0 or 1), rotated: channel i at out[i * stride].
  void turned(int64_t token, int64_t part, int64_t head, float* out, int64_t stride) const {
    const bf16* x = channels(token, part, head);
    const int64_t half = width_ / 2;
    const float* row = turns_ + token / args_.columns * pairs() * 2;
    const float* column = turns_ + token % args_.columns * pairs() * 2;
    for (int64_t i = 0; i < half; ++i) {
      const float* turn = i < pairs() ? row + 2 * i : column + 2 * (i - pairs());
      const float a = to_float(x[i]), b = to_float(x[half + i]);
      out[i * stride] = round_to_bf16(a * turn[0] - b * turn[1]);
      out[(half + i) * stride] = round_to_bf16(b * turn[0] + a * turn[1]);
    }
  }

 private:
  int64_t pairs() const { return width_ / 4; }
  const bf16* channels(int64_t token, int64_t part, int64_t head) const {
    return args_.qkv.row(token) + (part * heads_ + head) * width_;
  }

  const ImageAttentionArgs& args_;
  int64_t tokens_, heads_, width_, places_, panels_, value_width_;
  float *turns_, *keys_, *values_;
};

// kImageQueries rows of one head.
void attend(const RowKernels& rows, const ImageAttentionArgs& args, const AttentionPlan& plan,
            int64_t head, int64_t first, float* scratch) {
  const int64_t tokens = args.o.extent(0), width = args.o.extent(2);
  const int64_t stride = plan.panels() * kImagePanel;
  const int64_t count = std::min(kImageQueries, tokens - first);
  float* q = scratch;
  float* o = q + kImageQueries * width;
  float* scores = o + kImageQueries * plan.value_width();
  std::fill_n(q, kImageQueries * width, 0.0f);
  for (int64_t r = 0; r < count; ++r) plan.turned(first + r, 0, head, q + r * width, 1);
  rows.image_scores(q, width, plan.keys(head), plan.panels(), scores, stride);
  float sums[kImageQueries];
  for (int64_t r = 0; r < kImageQueries; ++r) {
    sums[r] = rows.image_softmax(scores + r * stride, tokens, args.scale);
  }
  std::fill_n(o, kImageQueries * plan.value_width(), 0.0f);
  rows.image_values(scores, stride, plan.values(head), tokens, plan.value_width(), o);
  for (int64_t r = 0; r < count; ++r) {
    rows.divide(o + r * plan.value_width(), width, sums[r], args.o.row(first + r) + head * width);
  }
}

}  // namespace

void image_attention(Queue& queue, const ImageAttentionArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.o.extent(0), heads = args.o.extent(1), width = args.o.extent(2);
  if (tokens == 0) return;
  const int threads = queue.team().size();
  const AttentionPlan plan(queue, args);
  const int64_t stride = plan.panels() * kImagePanel;
  queue.scratch().reserve_per_thread(
      static_cast<size_t>(kImageQueries * (width + plan.value_width() + stride)) * sizeof(float));
  const int64_t blocks = divide_up(tokens, kImageQueries);
  WorkShare packs(heads * plan.panels(), threads), tasks(heads * blocks, threads);
  queue.run(tokens * tokens * heads * width, [&](const TeamMember& member) {
    packs.each([&](int64_t task) { plan.prepare(task / plan.panels(), task % plan.panels()); });
    member.barrier();
    auto* scratch = reinterpret_cast<float*>(queue.scratch().of_thread(member.index()));
    tasks.each([&](int64_t task) {
      attend(queue.rows(), args, plan, task / blocks, task % blocks * kImageQueries, scratch);
    });
  });
}

void residual_norm(Queue& queue, const ResidualNormArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.stream.extent(0), dim = args.stream.extent(1);
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * dim * 2, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      if (args.update.present()) {
        queue.rows().add_rows(args.stream.row(t), args.update.row(t), dim);
      }
      std::copy_n(args.stream.row(t), dim, args.x.row(t));
      queue.rows().rms_norm(args.x.row(t), dim, args.norm.data, args.norm_eps);
    });
  });
}

void gated_unit(Queue& queue, const GatedUnitArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.h.extent(0), width = args.h.extent(1);
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * width * 8, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      const bf16* gate = args.gate_up.row(t);
      queue.rows().gated_unit(gate, gate + width, width, args.h.row(t));
    });
  });
}

void unfold_cells(Queue& queue, const UnfoldCellsArgs& args) {
  check_shapes(args);
  const int64_t dim = args.x.extent(1), ratio = args.ratio, area = ratio * ratio;
  const int64_t rows = args.x.extent(0) / args.columns;
  const int64_t cell_columns = divide_up(args.columns, ratio);
  WorkShare tasks(args.cells.extent(0), queue.team().size());
  queue.run(args.cells.elements(), [&](const TeamMember&) {
    tasks.each([&](int64_t cell) {
      for (int64_t place = 0; place < area; ++place) {
        const int64_t row = cell / cell_columns * ratio + place / ratio;
        const int64_t column = cell % cell_columns * ratio + place % ratio;
        bf16* out = args.cells.row(cell) + place;
        const bool inside = row < rows && column < args.columns;
        const bf16* in = inside ? args.x.row(row * args.columns + column) : nullptr;
        for (int64_t c = 0; c < dim; ++c) out[c * area] = inside ? in[c] : bf16{};
      }
    });
  });
}

void gelu(Queue& queue, const GeluArgs& args) {
  check_shapes(args);
  const int64_t width = args.x.extent(1);
  const float root = std::sqrt(2.0f);
  WorkShare tasks(args.x.extent(0), queue.team().size());
  queue.run(args.x.elements() * 16, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      bf16* row = args.x.row(t);
      for (int64_t i = 0; i < width; ++i) {
        const float x = to_float(row[i]);
        row[i] = to_bf16(x * 0.5f * (1 + std::erf(x / root)));
      }
    });
  });
}

}  // namespace cachalot::cpu
