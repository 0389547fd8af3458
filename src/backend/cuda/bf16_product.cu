#include <algorithm>
#include <optional>

#include "backend/cuda/bf16_product.h"
#include "backend/cuda/bf16_product_few.h"
#include "backend/cuda/bf16_product_kernels.cuh"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/tensor_map.h"

namespace cachalot::cuda {
namespace {

// A matrix as the copy engine reads it: at a multiple of 16, rows a multiple of 16 bytes.
struct Matrix {
  const void* data;
  int64_t rows, columns, element;  // bytes
};

struct Padding {
  const uint8_t* from;
  uint8_t* to;
  int64_t rows, bytes, padded;  // of a row
};

// One block a row.
__global__ void pad_rows(const Padding padding) {
  wait_for_inputs();
  for (int64_t row = blockIdx.x; row < padding.rows; row += gridDim.x) {
    for (int64_t i = threadIdx.x; i < padding.padded; i += blockDim.x) {
      padding.to[row * padding.padded + i] =
          i < padding.bytes ? padding.from[row * padding.bytes + i] : 0;
    }
  }
}

// A copy with zeros behind its rows.
Matrix padded(Queue& queue, Scratch& scratch, const char* operation, const Matrix& matrix,
              int64_t columns) {
  const int64_t bytes = columns * matrix.element;
  auto* to = scratch.allocate<uint8_t>(matrix.rows * bytes);
  launch(queue, operation, pad_rows,
         {.blocks = dim3(static_cast<unsigned>(matrix.rows < 65535 ? matrix.rows : 65535))},
         Padding{static_cast<const uint8_t*>(matrix.data), to, matrix.rows,
                 matrix.columns * matrix.element, bytes});
  return {to, matrix.rows, columns, matrix.element};
}

bool fits(const Matrix& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
         matrix.columns * matrix.element % 16 == 0;
}

CUtensorMap map_of(const Matrix& matrix, int box_rows, int box_columns) {
  const bool codes = matrix.element == 1;
  return tensor_map(
      matrix.data,
      {.type = codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
       .rows = matrix.rows,
       .columns = matrix.columns,
       .row_bytes = matrix.columns * matrix.element,
       .box_rows = box_rows,
       .box_columns = box_columns,
       .swizzle = box_columns * matrix.element == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                      : CU_TENSOR_MAP_SWIZZLE_64B});
}

struct Work {
  const char* operation;
  Matrix weight, x;
  ProductShape shape;
  ProductPlan plan;
  TileScales scales;
  ProductOutput output;
};

constexpr int64_t kSharedBytes = 226 << 10;
// So that a block of the next kernel fits beside: it fetches weights while this one ends.
constexpr int64_t kNarrowSharedBytes = 108 << 10;
// So that no second block of the same kernel does.
constexpr int64_t kAloneSharedBytes = 118 << 10;
constexpr int64_t kAtom = 1024;

int stages_for(int64_t budget, int64_t stage_bytes) {
  const int64_t stages = (budget - kAtom) / stage_bytes;
  CACHALOT_CHECK(stages >= 2, "no room for two stages of {} bytes", stage_bytes);
  return static_cast<int>(stages < kMaxStages ? stages : kMaxStages);
}

// Rows of the window, if so many are to be written and can be beside the product.
std::optional<WindowWrite> take_window(Queue& queue, const Work& work) {
  constexpr int64_t kMost = 128;
  const int64_t results = int64_t{work.shape.tokens} * work.shape.groups * work.shape.rows;
  const Bytes y = work.output.y != nullptr
                      ? Bytes{work.output.y, results * int64_t{sizeof(bf16)}}
                      : Bytes{work.output.y_f32, results * int64_t{sizeof(float)}};
  const Bytes x{work.x.data, work.x.rows * work.x.columns * work.x.element};
  const auto held = queue.held().take<WriteWindowArgs>([&](const WriteWindowArgs& args) {
    return WindowWrite(args).wide && args.rows.tokens() <= kMost &&
           !overlap({y}, {args.window_rows, args.ring}) && !overlap({x}, {args.ring});
  });
  if (!held) return std::nullopt;
  return WindowWrite(*held);
}

// Whether BF16 results leave through shared memory.
bool stages_results(const Product& product, const ProductPlan& plan) {
  if (product.y == nullptr || !fits({product.y, product.tokens, product.weight.rows, 2}))
    return false;
  const bool whole = product.weight.rows / product.groups % kTileRows == 0;
  // A box of 64 rows at the end of a group would reach into the next one.
  if (plan.wide) return product.groups == 1 || whole;
  return whole && plan.segments == 1 && plan.token_tile >= 16;
}

template <class Weights, int kN>
void start_narrow(Queue& queue, Work work) {
  using Stage = NarrowStage<Weights, kN>;
  ProductShape& shape = work.shape;
  const int64_t beyond = (shape.staged ? kNarrowOutletBytes<kN> : 0) +
                         (Weights::kExpanded ? ExpandingScales::bytes(work.scales.blocks) : 0);
  shape.stages = stages_for((kN > 64 ? kSharedBytes : kNarrowSharedBytes) - beyond, Stage::kBytes);
  const int64_t items = shape.groups * shape.row_tiles * shape.token_tiles;
  const int64_t multiprocessors = queue.multiprocessors(), full = multiprocessors * 2;
  const int64_t blocks = shape.segments > 1 ? items * shape.segments : items < full ? items : full;
  // Blocks whose instructions are what takes time do not share a multiprocessor if there is one for
  // each.
  const bool alone =
      Weights::kExpanded && kN > 8 && kN <= 64 && shape.segments == 1 && blocks <= multiprocessors;
  int64_t shared_bytes = kAtom + shape.stages * Stage::kBytes + beyond;
  if (alone) shared_bytes = std::max(shared_bytes, kAloneSharedBytes);
  LaunchShape launched{.blocks = dim3(static_cast<unsigned>(blocks)),
                       .threads = kNarrowThreads,
                       .shared_bytes = static_cast<size_t>(shared_bytes),
                       .cluster = shape.segments};
  const CUtensorMap weight_map = map_of(work.weight, kTileRows, Weights::kExpanded ? 128 : 64);
  const CUtensorMap x_map = map_of(work.x, kN, kHalf);
  if constexpr (Weights::kExpanded && kN <= 64) {
    const int64_t room = (alone ? multiprocessors : full) - blocks;
    std::optional<WindowWrite> window;
    if (shape.segments == 1 && room > 0) window = take_window(queue, work);
    if (window) {
      launched.blocks.x +=
          static_cast<unsigned>(std::min(room, parts_of(window->tokens, kNarrowThreads / 32)));
      return launch(queue, work.operation, multiply_narrow_and_write<Weights, kN>, launched,
                    weight_map, x_map, shape, work.scales, work.output, *window,
                    static_cast<int>(blocks));
    }
  }
  launch(queue, work.operation, multiply_narrow<Weights, kN>, launched, weight_map, x_map, shape,
         work.scales, work.output);
}

template <class Weights, int kN, bool kSegmented>
void start_wide(Queue& queue, Work work) {
  using Stage = WideStage<Weights, kN>;
  ProductShape& shape = work.shape;
  const int64_t factors = Weights::kExpanded ? 2 * ExpandingScales::bytes(work.scales.blocks) : 0;
  const int64_t beyond = 2 * kOutletBytes + factors;
  shape.stages = stages_for(kSharedBytes - beyond, Stage::kBytes);
  const int64_t items = shape.groups * (shape.row_tiles / 2) * shape.token_tiles;
  const int64_t full = queue.multiprocessors() / 2;
  const Matrix y{work.output.y, shape.tokens, int64_t{1} * shape.groups * shape.rows, 2};
  const CUtensorMap y_map = shape.staged ? map_of(y, kOutletTokens, kTileRows) : CUtensorMap{};
  launch(queue, work.operation, multiply_wide<Weights, kN, kSegmented>,
         {.blocks = dim3(static_cast<unsigned>(2 * (items < full ? items : full))),
          .threads = 384,
          .shared_bytes = static_cast<size_t>(kAtom + shape.stages * Stage::kBytes + beyond),
          .cluster = 2},
         map_of(work.weight, 2 * kTileRows, kHalf), map_of(work.x, kN / 2, kHalf), y_map, shape,
         work.scales, work.output);
}

template <class Weights>
void start(Queue& queue, const Work& work) {
  const ProductPlan& plan = work.plan;
  if (plan.wide && plan.token_tile == 256) return start_wide<Weights, 256, false>(queue, work);
  if (plan.wide && plan.segments == 1) return start_wide<Weights, 128, false>(queue, work);
  if (plan.wide) return start_wide<Weights, 128, true>(queue, work);
  if (plan.token_tile == 128) return start_narrow<Weights, 128>(queue, work);
  if (plan.token_tile == 64) return start_narrow<Weights, 64>(queue, work);
  if (plan.token_tile == 32) return start_narrow<Weights, 32>(queue, work);
  if (plan.token_tile == 16) return start_narrow<Weights, 16>(queue, work);
  start_narrow<Weights, 8>(queue, work);
}

}  // namespace

void multiply(Queue& queue, Scratch& scratch, const Product& product) {
  const DenseMatrix& matrix = product.weight;
  const int64_t tokens = product.tokens, groups = product.groups;
  const int64_t rows = matrix.rows / groups, columns = matrix.columns;
  if (tokens == 0 || rows == 0) return;
  if (tokens <= kFewTokens && fits_few(product)) return multiply_few(queue, product);
  Matrix weight = matrix.quantized() ? Matrix{matrix.codes.data, matrix.rows, columns, 1}
                                     : Matrix{matrix.values.data, matrix.rows, columns, 2};
  Matrix x{product.x, tokens, groups * columns, 2};
  // A chunk at the end of a row reads zeros beyond it, but the inputs of a group have neighbours.
  const bool whole = groups == 1 || columns % kProductChunk == 0;
  int64_t width = columns;
  if (!whole || !fits(weight) || !fits(x)) {
    width = parts_of(columns, kProductChunk) * kProductChunk;
    weight = padded(queue, scratch, product.operation, weight, width);
    x = padded(queue, scratch, product.operation, {product.x, tokens * groups, columns, 2}, width);
    x.rows = tokens;
    x.columns = groups * width;
  }
  const ProductPlan plan = product_plan(groups, rows, columns, tokens);
  const Work work{.operation = product.operation,
                  .weight = weight,
                  .x = x,
                  .shape = {.groups = static_cast<int>(groups),
                            .rows = static_cast<int>(rows),
                            .columns = static_cast<int>(width),
                            .tokens = static_cast<int>(tokens),
                            .row_tiles = plan.row_tiles,
                            .token_tiles = plan.token_tiles,
                            .chunks = static_cast<int>(parts_of(columns, kProductChunk)),
                            .segments = plan.segments,
                            .staged = stages_results(product, plan)},
                  .plan = plan,
                  .scales = {.scales = matrix.scales.data,
                             .row_blocks = static_cast<int>(blocks_of(matrix.rows)),
                             .blocks = static_cast<int>(blocks_of(columns))},
                  .output = {product.bias, product.y, product.y_f32}};
  if (matrix.quantized()) return start<Fp8Weights>(queue, work);
  start<Bf16Weights>(queue, work);
}

}  // namespace cachalot::cuda
