#include "backend/cuda/launch.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;

struct Embedding {
  const int32_t* ids;
  const int32_t* image_index;
  const bf16* image_rows;
  const bf16* table;
  bf16* stream;
  float* pre;
  int64_t dim;
  int copies;
};

// A block per token and kThreads units of its row.
__global__ void __launch_bounds__(kThreads) embed_kernel(const Embedding args) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x, unit = blockIdx.y * kThreads + threadIdx.x;
  if (unit < args.copies) args.pre[t * args.copies + unit] = unit == 0 ? 1.0f : 0.0f;
  if (unit * kUnit >= args.dim) return;
  const int32_t image = args.image_index[t];
  const bf16* row =
      image >= 0 ? args.image_rows + image * args.dim : args.table + args.ids[t] * args.dim;
  const uint4 words = load_unit(row, unit);
  for (int c = 0; c < args.copies; ++c)
    store_unit(args.stream + (t * args.copies + c) * args.dim, unit, words);
}

}  // namespace

void embed(Queue& queue, const EmbedArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.ids.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  CACHALOT_CHECK(dim % kUnit == 0 && copies <= kThreads, "embed: {} copies of {}", copies, dim);
  const auto parts = static_cast<unsigned>((dim / kUnit + kThreads - 1) / kThreads);
  launch(queue, "embed", embed_kernel,
         {.blocks = {static_cast<unsigned>(tokens), parts}, .threads = kThreads},
         Embedding{.ids = args.ids.data,
                   .image_index = args.image_index.data,
                   .image_rows = args.image_rows.data,
                   .table = args.table.data,
                   .stream = args.stream.data,
                   .pre = args.pre.data,
                   .dim = dim,
                   .copies = static_cast<int>(copies)});
}

}  // namespace cachalot::cuda
