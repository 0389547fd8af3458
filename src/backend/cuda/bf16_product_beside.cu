#include <algorithm>

#include "backend/cuda/bf16_product_beside.h"
#include "backend/cuda/bf16_product_narrow.cuh"
#include "backend/cuda/tensor_map.h"

namespace cachalot::cuda {
namespace {

// So that two blocks fit a multiprocessor.
constexpr int kMostSharedBytes = 108 << 10;

struct NarrowProducts {
  CUtensorMap x;
  CUtensorMap weights[Bf16Products::kMost];
  ProductShape shapes[Bf16Products::kMost];
  ProductOutput outputs[Bf16Products::kMost];
  int ends[Bf16Products::kMost];  // of each one's blocks
};

// kBeside: as start_beside() says. All kernels before that one have ended then, and x is there;
// whoever waits for this one waits for both, because the first block does.
template <int kTokens, bool kBeside>
__global__ void __launch_bounds__(kNarrowThreads, 2)
    multiply_some(const __grid_constant__ NarrowProducts p) {
  extern __shared__ uint8_t shared[];
  const auto block = static_cast<int>(blockIdx.x);
  int product = 0, first = 0;
  while (block >= p.ends[product]) first = p.ends[product++];
  if (kBeside) let_next_start();
  multiply_narrow_tiles<Bf16Weights, kTokens, !kBeside>(p.weights[product], p.x, p.shapes[product],
                                                        {}, p.outputs[product], block - first,
                                                        p.ends[product] - first, shared);
  if (kBeside && block == 0) wait_for_inputs();
}

CUtensorMap map_of(const bf16* values, int64_t rows, int64_t columns, int box_rows) {
  return tensor_map(values, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                             .rows = rows,
                             .columns = columns,
                             .row_bytes = columns * 2,
                             .box_rows = box_rows,
                             .box_columns = kHalf,
                             .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
}

void start(Queue& queue, const Bf16Products& products, bool beside) {
  constexpr int kAtom = 1024;
  const View<const bf16>& x = products.of[0].x;
  const int64_t tokens = x.extent(0), columns = x.extent(1);
  const auto chunks = static_cast<int>(parts_of(columns, kProductChunk));
  const ProductPlan plan = product_plan(1, products.of[0].weight.rows, columns, tokens);
  const int stage_bytes = (kTileRows + plan.token_tile) * static_cast<int>(kProductChunk) * 2;
  const int stages = std::min(static_cast<int>(parts_of(chunks, plan.segments)),
                              (kMostSharedBytes - kAtom) / stage_bytes);
  NarrowProducts p{.x = map_of(x.data, tokens, columns, plan.token_tile)};
  int blocks = 0;
  for (int i = 0; i < products.count; ++i) {
    const LinearArgs& args = products.of[static_cast<size_t>(i)];
    const auto tiles = static_cast<int>(parts_of(args.weight.rows, kTileRows));
    p.weights[i] = map_of(args.weight.values.data, args.weight.rows, columns, kTileRows);
    p.shapes[i] = {.groups = 1,
                   .rows = static_cast<int>(args.weight.rows),
                   .columns = static_cast<int>(columns),
                   .tokens = static_cast<int>(tokens),
                   .row_tiles = tiles,
                   .token_tiles = 1,
                   .chunks = chunks,
                   .segments = plan.segments,
                   .stages = stages};
    p.outputs[i] = {nullptr, reinterpret_cast<__nv_bfloat16*>(args.y.data), args.y_f32.data};
    p.ends[i] = blocks += tiles * plan.segments;
  }
  const auto kernel = beside                  ? multiply_some<8, true>
                      : plan.token_tile == 8  ? multiply_some<8, false>
                      : plan.token_tile == 16 ? multiply_some<16, false>
                      : plan.token_tile == 32 ? multiply_some<32, false>
                                              : multiply_some<64, false>;
  launch(queue, "linear", kernel,
         {.blocks = static_cast<unsigned>(blocks),
          .threads = kNarrowThreads,
          .shared_bytes = static_cast<size_t>(kAtom + stages * stage_bytes),
          .cluster = plan.segments},
         p);
}

}  // namespace

bool stands_beside(const LinearArgs& args) {
  const DenseMatrix& weight = args.weight;
  const int64_t tokens = args.x.extent(0);
  const auto whole = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return !weight.quantized() && args.norm.absent() && args.bias.absent() && tokens > 0 &&
         tokens <= Bf16Products::kTokens && weight.rows > 0 && weight.columns % 8 == 0 &&
         whole(args.x.data) && whole(weight.values.data) &&
         product_segments(1, weight.rows, weight.columns) > 1;
}

void start_beside(Queue& queue, const Bf16Products& products) {
  CACHALOT_CHECK(products.of[0].x.extent(0) <= 8, "{} tokens", products.of[0].x.extent(0));
  start(queue, products, true);
}

void start_alone(Queue& queue, const Bf16Products& products) {
  if (products.count == 1) return start_alone(queue, products.of[0]);
  start(queue, products, false);
}

}  // namespace cachalot::cuda
