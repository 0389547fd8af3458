// linear, grouped_linear, head (contract: ops/linear.h; docs/kernels/linear.md): prepare the
// activations, then blocks of outputs shared among the threads.
#include <atomic>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Columns of a row that are prepared at a time.
constexpr int64_t kColumnBlock = 1024;
static_assert(kColumnBlock % kScaleBlock == 0);

// Activation rows prepared for the kernels in the queue's shared scratch: `groups` operands of
// `tokens` rows, row after row with the pointers to them, and packed where the kernels want that.
class PreparedRows {
 public:
  PreparedRows(Queue& queue, const PackedWeight& weight, int64_t groups, int64_t tokens)
      : kernels_(queue.matmul()),
        columns_(weight.columns),
        format_(weight.format),
        groups_(groups),
        tokens_(tokens),
        stride_(activation_stride(kernels_, columns_)) {
    if (kernels_.pack) packed_bytes_ = (kernels_.packed_bytes(tokens, columns_) + 63) / 64 * 64;
    ScratchLayout layout;
    const size_t values = layout.add(groups * tokens, static_cast<size_t>(stride_));
    const size_t table = layout.add(groups * tokens, sizeof(void*));
    const size_t packed = layout.add(groups, static_cast<size_t>(packed_bytes_));
    std::byte* shared = queue.scratch().reserve_shared(layout.bytes());
    pointers_ = reinterpret_cast<const void**>(shared + table);
    packed_ = shared + packed;
    for (int64_t i = 0; i < groups * tokens; ++i) pointers_[i] = shared + values + i * stride_;
  }

  // Units of preparation, independent of each other: some columns of a row, or of the rows that are
  // packed together.
  int64_t pieces() const { return groups_ * (kernels_.pack ? tiles() : tokens_) * slices(); }

  // Calls fill(group, token, first column, columns, prepared row) for all of the piece.
  template <class F>
  void prepare(int64_t piece, F&& fill) const {
    const int64_t first = piece % slices() * kColumnBlock;
    const int64_t count = std::min(kColumnBlock, columns_ - first);
    const auto fill_row = [&](int64_t row) {
      fill(row / tokens_, row % tokens_, first, count, prepared(row));
    };
    piece /= slices();
    if (!kernels_.pack) return fill_row(piece);
    const int64_t group = piece / tiles(), tile = piece % tiles();
    const int64_t end = std::min(tokens_, (tile + 1) * kPackTokens);
    for (int64_t t = tile * kPackTokens; t < end; ++t) fill_row(group * tokens_ + t);
    kernels_.pack(pointers_ + group * tokens_, tokens_, columns_, format_, tile, first, count,
                  packed_ + group * packed_bytes_);
  }

  // Sets the operand of a product.
  void give(Product& product, int64_t group) const {
    product.x = pointers_ + group * tokens_;
    product.packed = packed_ + group * packed_bytes_;
    product.tokens = tokens_;
  }

 private:
  int64_t tiles() const { return (tokens_ + kPackTokens - 1) / kPackTokens; }
  int64_t slices() const { return (columns_ + kColumnBlock - 1) / kColumnBlock; }
  std::byte* prepared(int64_t row) const {
    return static_cast<std::byte*>(const_cast<void*>(pointers_[row]));
  }

  const MatmulKernels& kernels_;
  int64_t columns_;
  PackedWeight::Format format_;
  int64_t groups_, tokens_, stride_;
  int64_t packed_bytes_ = 0;
  const void** pointers_;  // [groups * tokens]
  std::byte* packed_;      // [groups] operands
};

// Tokens whose norms the thread takes that computes the last output, instead of all meeting first.
constexpr int64_t kFewNorms = 2;

// One piece of a product, its sums kept in `sums` [tokens, rows of the piece] on the way.
void multiply_with_bias(Queue& queue, Product product, View<const bf16> bias, float* sums,
                        std::byte* scratch) {
  bf16* y = product.y;
  const int64_t y_stride = product.y_stride, rows = product.last_row - product.first_row;
  product.y = nullptr;
  product.y_f32 = sums;
  product.y_stride = rows;
  product.y_first_row = product.first_row;
  queue.matmul().multiply(product, scratch);
  for (int64_t t = 0; t < product.tokens; ++t) {
    queue.rows().add_bias(sums + t * rows, bias.data + product.first_row, rows,
                          y + t * y_stride + product.first_row);
  }
}

}  // namespace

void linear(Queue& queue, const LinearArgs& args) {
  check_shapes(args);
  const MatmulKernels& kernels = queue.matmul();
  const PackedWeight weight = packed(args.weight);
  const int64_t tokens = args.x.extent(0);
  if (tokens == 0) return;
  const int threads = queue.team().size();
  const PreparedRows prepared(queue, weight, 1, tokens);
  const OutputPieces outputs(kernels, weight.rows, tokens, threads);
  ScratchLayout own;
  own.add(kernels.scratch_bytes, 1);
  // With a bias a piece's sums stay in FP32 until it is added.
  const size_t sums_at = own.add(args.bias.present() ? tokens * outputs.block : 0, sizeof(float));
  queue.scratch().reserve_per_thread(own.bytes());
  WorkShare rows(prepared.pieces(), threads), blocks(outputs.count(), threads),
      norms(tokens, threads);
  const bool normed = args.norm.present() && args.y.present();
  std::atomic<int64_t> blocks_left{outputs.count()};
  const auto norm = [&](int64_t t) {
    queue.rows().rms_norm(args.y.row(t), weight.rows, args.norm.data, args.norm_eps);
  };

  queue.run(tokens * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t piece) {
      prepared.prepare(piece, [&](int64_t, int64_t t, int64_t first, int64_t count, void* row) {
        const auto fill =
            weight.format == PackedWeight::Format::fp8 ? kernels.quantize : kernels.keep;
        fill(args.x.row(t) + first, first, count, weight.format, row);
      });
    });
    member.barrier();
    blocks.each_with_next([&](int64_t piece, int64_t next) {
      Product product{.weight = weight,
                      .first_row = outputs.first(piece),
                      .last_row = outputs.last(piece),
                      .y = args.y.data,
                      .y_f32 = args.y_f32.data,
                      .y_stride = weight.rows};
      if (next >= 0) announce(product, weight, outputs.first(next), outputs.last(next));
      prepared.give(product, 0);
      std::byte* scratch = queue.scratch().of_thread(member.index());
      if (args.bias.absent()) {
        kernels.multiply(product, scratch);
      } else {
        multiply_with_bias(queue, product, args.bias, reinterpret_cast<float*>(scratch + sums_at),
                           scratch);
      }
      if (normed && tokens <= kFewNorms &&
          blocks_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        for (int64_t t = 0; t < tokens; ++t) norm(t);
      }
    });
    if (!normed || tokens <= kFewNorms) return;
    member.barrier();
    norms.each(norm);
  });
}

void grouped_linear(Queue& queue, const GroupedLinearArgs& args) {
  check_shapes(args);
  const MatmulKernels& kernels = queue.matmul();
  const PackedWeight weight = packed(args.weight);
  const int64_t tokens = args.x.extent(0);
  const int64_t groups = args.x.extent(1);
  if (tokens == 0) return;
  const int threads = queue.team().size();
  const PreparedRows prepared(queue, weight, groups, tokens);
  const OutputPieces outputs(kernels, weight.rows / groups, tokens, threads, groups);
  queue.scratch().reserve_per_thread(static_cast<size_t>(kernels.scratch_bytes));
  WorkShare rows(prepared.pieces(), threads), blocks(groups * outputs.count(), threads);

  queue.run(tokens * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t piece) {
      prepared.prepare(piece,
                       [&](int64_t group, int64_t t, int64_t first, int64_t count, void* row) {
                         kernels.keep(args.x.row(t) + group * weight.columns + first, first, count,
                                      weight.format, row);
                       });
    });
    member.barrier();
    blocks.each_with_next([&](int64_t i, int64_t next) {
      const int64_t group = i / outputs.count(), piece = i % outputs.count();
      Product product{.weight = weight,
                      .first_row = group * outputs.rows + outputs.first(piece),
                      .last_row = group * outputs.rows + outputs.last(piece),
                      .y = args.y.data,
                      .y_stride = weight.rows};
      if (next >= 0) {
        const int64_t start = next / outputs.count() * outputs.rows, then = next % outputs.count();
        announce(product, weight, start + outputs.first(then), start + outputs.last(then));
      }
      prepared.give(product, group);
      kernels.multiply(product, queue.scratch().of_thread(member.index()));
    });
  });
}

void head(Queue& queue, const HeadArgs& args) {
  check_shapes(args);
  const MatmulKernels& kernels = queue.matmul();
  const PackedWeight weight = packed(DenseMatrix{.rows = args.weight.extent(0),
                                                 .columns = args.weight.extent(1),
                                                 .codes = {},
                                                 .scales = {},
                                                 .values = args.weight});
  const int64_t count = args.rows.extent(0);
  if (count == 0) return;
  const int threads = queue.team().size();
  const PreparedRows prepared(queue, weight, 1, count);
  const OutputPieces outputs(kernels, weight.rows, count, threads);
  queue.scratch().reserve_per_thread(static_cast<size_t>(kernels.scratch_bytes));
  WorkShare rows(prepared.pieces(), threads), blocks(outputs.count(), threads);

  queue.run(count * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t piece) {
      prepared.prepare(piece, [&](int64_t, int64_t i, int64_t first, int64_t count, void* row) {
        kernels.keep(args.x.row(args.rows.data[i]) + first, first, count, weight.format, row);
      });
    });
    member.barrier();
    blocks.each_with_next([&](int64_t piece, int64_t next) {
      Product product{.weight = weight,
                      .first_row = outputs.first(piece),
                      .last_row = outputs.last(piece),
                      .y_f32 = args.logits.data,
                      .y_stride = weight.rows};
      if (next >= 0) announce(product, weight, outputs.first(next), outputs.last(next));
      prepared.give(product, 0);
      kernels.multiply(product, queue.scratch().of_thread(member.index()));
    });
  });
}

}  // namespace cachalot::cpu
