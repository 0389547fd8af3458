// linear, grouped_linear, head (contract: ops/linear.h; docs/kernels/linear.md): prepare the
// activations, then blocks of outputs shared among the threads.
#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Prepared activation rows in the queue's shared scratch, with the pointers the kernels follow.
struct PreparedRows {
  std::byte* data;
  int64_t stride;
  const void** pointers;  // [count]

  PreparedRows(Queue& queue, int64_t count, int64_t columns)
      : stride(activation_stride(queue.matmul(), columns)) {
    ScratchLayout layout;
    const size_t values = layout.add(count, static_cast<size_t>(stride));
    const size_t table = layout.add(count, sizeof(void*));
    std::byte* shared = queue.scratch().reserve_shared(layout.bytes());
    data = shared + values;
    pointers = reinterpret_cast<const void**>(shared + table);
    for (int64_t i = 0; i < count; ++i) pointers[i] = data + i * stride;
  }
  void* row(int64_t index) const { return data + index * stride; }
};

}  // namespace

void linear(Queue& queue, const LinearArgs& args) {
  check_shapes(args);
  const MatmulKernels& kernels = queue.matmul();
  const PackedWeight weight = packed(args.weight);
  const int64_t tokens = args.x.extent(0);
  if (tokens == 0) return;
  const int threads = queue.team().size();
  const PreparedRows prepared(queue, tokens, weight.columns);
  queue.scratch().reserve_per_thread(static_cast<size_t>(kernels.scratch_bytes));
  WorkShare rows(tokens, threads), blocks(output_blocks(weight.rows), threads),
      norms(tokens, threads);

  queue.run(tokens * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t t) {
      if (weight.format == PackedWeight::Format::fp8) {
        kernels.quantize(args.x.row(t), weight.columns, weight.format, prepared.row(t));
      } else {
        kernels.keep(args.x.row(t), weight.columns, weight.format, prepared.row(t));
      }
    });
    member.barrier();
    blocks.each([&](int64_t block) {
      kernels.multiply({.weight = weight,
                        .first_row = block * kOutputBlock,
                        .last_row = std::min(weight.rows, (block + 1) * kOutputBlock),
                        .x = prepared.pointers,
                        .tokens = tokens,
                        .y = args.y.data,
                        .y_f32 = args.y_f32.data,
                        .y_stride = weight.rows},
                       queue.scratch().of_thread(member.index()));
    });
    if (args.norm.absent() || args.y.absent()) return;
    member.barrier();
    norms.each([&](int64_t t) {
      queue.rows().rms_norm(args.y.row(t), weight.rows, args.norm.data, args.norm_eps);
    });
  });
}

void grouped_linear(Queue& queue, const GroupedLinearArgs& args) {
  check_shapes(args);
  const MatmulKernels& kernels = queue.matmul();
  const PackedWeight weight = packed(args.weight);
  const int64_t tokens = args.x.extent(0);
  const int64_t groups = args.x.extent(1);
  if (tokens == 0) return;
  const int64_t outputs = weight.rows / groups;
  const int64_t group_blocks = output_blocks(outputs);
  const int threads = queue.team().size();
  // Row g * tokens + t holds token t's group g.
  const PreparedRows prepared(queue, groups * tokens, weight.columns);
  queue.scratch().reserve_per_thread(static_cast<size_t>(kernels.scratch_bytes));
  WorkShare rows(groups * tokens, threads), blocks(groups * group_blocks, threads);

  queue.run(tokens * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t i) {
      const bf16* x = args.x.row(i % tokens) + i / tokens * weight.columns;
      kernels.keep(x, weight.columns, weight.format, prepared.row(i));
    });
    member.barrier();
    blocks.each([&](int64_t i) {
      const int64_t group = i / group_blocks;
      const int64_t first = i % group_blocks * kOutputBlock;
      kernels.multiply({.weight = weight,
                        .first_row = group * outputs + first,
                        .last_row = group * outputs + std::min(outputs, first + kOutputBlock),
                        .x = prepared.pointers + group * tokens,
                        .tokens = tokens,
                        .y = args.y.data,
                        .y_stride = weight.rows},
                       queue.scratch().of_thread(member.index()));
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
  const int64_t outputs = args.rows.extent(0);
  if (outputs == 0) return;
  const int threads = queue.team().size();
  const PreparedRows prepared(queue, outputs, weight.columns);
  queue.scratch().reserve_per_thread(static_cast<size_t>(kernels.scratch_bytes));
  WorkShare rows(outputs, threads), blocks(output_blocks(weight.rows), threads);

  queue.run(outputs * weight.rows * weight.columns, [&](const TeamMember& member) {
    rows.each([&](int64_t i) {
      kernels.keep(args.x.row(args.rows.data[i]), weight.columns, weight.format, prepared.row(i));
    });
    member.barrier();
    blocks.each([&](int64_t block) {
      kernels.multiply({.weight = weight,
                        .first_row = block * kOutputBlock,
                        .last_row = std::min(weight.rows, (block + 1) * kOutputBlock),
                        .x = prepared.pointers,
                        .tokens = outputs,
                        .y_f32 = args.logits.data,
                        .y_stride = weight.rows},
                       queue.scratch().of_thread(member.index()));
    });
  });
}

}  // namespace cachalot::cpu
