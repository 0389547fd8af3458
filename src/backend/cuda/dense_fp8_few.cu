// Few rows of x (docs/kernels/dense_fp8.md), called tokens here: the kernels, and which one takes a
// product.
#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "backend/cuda/bf16_product_beside.h"
#include "backend/cuda/cluster_occupancy.h"
#include "backend/cuda/compressor_beside.h"
#include "backend/cuda/dense_fp8_few.h"
#include "backend/cuda/dense_fp8_few_block.cuh"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_mixes.cuh"
#include "backend/cuda/pack_keys.cuh"

namespace cachalot::cuda {
namespace {

// Of a chunk: one box has the scales of all.
constexpr int kMaxSteps = 256 / kStepBlocks;
// Of a chunk whose columns of x a block can keep: 8 tokens take 1 KB a step.
constexpr int kMaxKeptSteps = 40;
// Tokens times steps that a block quantizes sooner than a kernel for it would have run: 80 gained 2
// us (wq_b), 128 lost half of one (engram), 320 lost 3 (main_proj).
constexpr int64_t kMaxQuantized = 96;
// Of more than 64 tokens: blocks that all run at a time on 132 multiprocessors.
constexpr int64_t kMostBlocks = 264;
int64_t tiles_of(const DenseMatrix& weight, int64_t tile_rows = kFewTileRows) {
  return (weight.rows + tile_rows - 1) / tile_rows;
}

// Of up to 8 tokens, and of 17 to 64: whether tiles of 192 rows, with the same chunks, are a block
// or less for each multiprocessor where those of 128 are more. Longer chunks would leave room for
// few stages.
bool takes_high_tiles(const DenseMatrix& weight) {
  constexpr int64_t kMultiprocessors = 132;
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const int64_t chunks = cut.chunks;
  return chunks <= 4 && cut.most_steps() <= 16 && tiles_of(weight) * chunks > kMultiprocessors &&
         tiles_of(weight, 192) * chunks <= kMultiprocessors;
}

template <class Product, bool kQuantizes, Ending ending>
__global__ void __launch_bounds__(Product::kThreads, Product::kGroups > 2 ? 1 : kFewBlocksAtOnce)
    multiply(const __grid_constant__ Few p) {
  extern __shared__ uint8_t shared[];
  multiply_tile<Product, kQuantizes, ending>(p, static_cast<int>(blockIdx.x), shared);
}

// Two products of the same rows of x with a norm, each by blocks of its own, and by some more the
// coefficients of the collapse that made x.
struct FewPair {
  Few first, second;
  int first_blocks, blocks;
};
using Few8 = WeightTimesTokens<8>;

__global__ void __launch_bounds__(Few8::kThreads, kFewBlocksAtOnce)
    multiply_pair(const __grid_constant__ FewPair p, const Mixes mixes) {
  extern __shared__ __align__(128) uint8_t memory[];
  const auto block = static_cast<int>(blockIdx.x);
  if (block < p.first_blocks) {
    multiply_tile<Few8, true, Ending::normed>(p.first, block, memory);
  } else if (block < p.blocks) {
    multiply_tile<Few8, true, Ending::normed>(p.second, block - p.first_blocks, memory);
  } else {
    compute_mixes<Few8::kThreads>(mixes, block - p.blocks, *reinterpret_cast<MixShared*>(memory),
                                  {}, p.first.late);
  }
}

// The same of rows that are quantized, whose norms, if they have any, are not applied.
template <class Product>
__global__ void __launch_bounds__(Product::kThreads, kFewBlocksAtOnce)
    multiply_rows_pair(const __grid_constant__ FewPair p) {
  extern __shared__ __align__(128) uint8_t memory[];
  const auto block = static_cast<int>(blockIdx.x);
  if (block < p.first_blocks) {
    multiply_tile<Product, false, Ending::rounded>(p.first, block, memory);
  } else {
    multiply_tile<Product, false, Ending::rounded>(p.second, block - p.first_blocks, memory);
  }
}

// Queries, and by a block more for each token its window row, which does not wait for them, or by a
// few blocks all keys of one token. kCompresses: the window rows, and the compression of the same
// tokens; an instance of its own, whose registers and parameters are more.
template <bool kCompresses>
__global__ void __launch_bounds__(Few8::kThreads, kFewBlocksAtOnce) multiply_and_turn(
    const __grid_constant__ Few p, const WindowRows rows,
    const __grid_constant__ std::conditional_t<kCompresses, KeptCompression, AttentionParameters>
        beside) {
  extern __shared__ __align__(128) uint8_t memory[];
  // The others first: blocks behind them wait for room that the kernel in front has yet to leave.
  const auto block = static_cast<int>(blockIdx.x), others = static_cast<int>(gridDim.x) - p.tiles;
  if (block >= others) {
    multiply_tile<Few8, true, Ending::turned>(p, block - others, memory);
  } else {
    let_next_start();
    if constexpr (kCompresses) {
      compress_with_key<Few8::kThreads>(beside, block,
                                        *reinterpret_cast<KeptCompressionShared*>(memory));
      make_window_row<Few8::kThreads>(rows, block);
    } else if (beside.packed == nullptr) {
      make_window_row<Few8::kThreads>(rows, block);
    } else {
      pack_keys<Few8::kThreads>(beside, rows, block, memory);
    }
  }
}

// How many clusters of a kernel run at once.
template <class Kernel>
int clusters_at_once(Kernel* kernel, int chunks, int shared_bytes) {
  struct Known {
    int shared_bytes = 0, clusters = 0;
  };
  thread_local std::map<Kernel*, std::array<Known, kMaxChunks + 1>> known;
  Known& of = known[kernel][static_cast<size_t>(chunks)];
  if (of.shared_bytes != shared_bytes) {
    of.clusters = most_clusters("linear", kernel,
                                {.threads = Few8::kThreads,
                                 .shared_bytes = static_cast<size_t>(shared_bytes),
                                 .cluster = chunks});
    of.shared_bytes = shared_bytes;
  }
  return of.clusters;
}

// A product, and how its kernel is started.
struct Started {
  Few of;
  LaunchShape shape;

  // All blocks of a kernel that applies a norm must run at a time.
  bool takes_norm() const { return shape.cluster > 1 && of.tiles <= kMaxNormTiles; }
};

template <class Product>
constexpr int shared_bytes_of() {
  if (Product::kGroups == 2) return kFewSharedBytes;
  return Product::kTokensAreM ? kHighTokensSharedBytes : kHighSharedBytes;
}

// x_values where kQuantizes, else x.
template <class Product, bool kQuantizes, Ending ending>
Started prepared(Queue& queue, const DenseMatrix& weight, const bf16* x_values,
                 const QuantizedRows& x, const Fp8Output& out) {
  using L = Layout<Product, kQuantizes>;
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const auto groups = static_cast<unsigned>((x.rows + Product::kTokens - 1) / Product::kTokens);
  const auto tiles = static_cast<int>(tiles_of(weight, Product::kTileRows));
  const int steps = cut.most_steps(),
            chunks_log = std::countr_zero(static_cast<unsigned>(cut.chunks));
  const int received = Shares<Product, ending>{chunks_log}.bytes();
  const int room = shared_bytes_of<Product>() - L(steps, 0, received).bytes;
  const L layout(steps, std::min(steps, room / static_cast<int>(L::kStageBytes)), received);
  CACHALOT_CHECK(layout.stages >= 2 || layout.stages == steps, "{} stages", layout.stages);
  Few p{.weight = codes_map(weight.codes.data, weight.rows, weight.columns, Product::kTileRows),
        .tile_scales = tile_scales_map(weight, L::kTileScales, steps),
        .x_values = reinterpret_cast<const uint4*>(x_values),
        .columns = static_cast<int>(x.columns),
        .tokens = static_cast<int>(x.rows),
        .out = static_cast<int>(weight.rows),
        .steps = cut.steps,
        .most_steps = steps,
        .chunks_log = chunks_log,
        .tiles = tiles,
        .stages = layout.stages,
        .y = reinterpret_cast<__nv_bfloat16*>(out.y),
        .bias = reinterpret_cast<const __nv_bfloat16*>(out.bias),
        .norm = reinterpret_cast<const __nv_bfloat16*>(out.norm),
        .norm_eps = out.norm_eps,
        .norm_sums = reinterpret_cast<uint32_t*>(queue.counters())};
  if (!kQuantizes) {
    p.x = codes_map(x.codes, x.rows, x.columns, Product::kTokens);
    p.x_scales = row_scales_map(x, Product::kTokens, steps);
  }
  if (Product::kTokensAreM) p.y_boxes = results_map(out, x.rows, weight.rows);
  return {p,
          {.blocks = dim3(tiles * cut.chunks, groups),
           .threads = Product::kThreads,
           .shared_bytes = static_cast<size_t>(layout.bytes),
           .cluster = cut.chunks}};
}

template <class Product, bool kQuantizes = false>
void start(Queue& queue, const DenseMatrix& weight, const bf16* x_values, const QuantizedRows& x,
           const Fp8Output& out) {
  const Started started =
      prepared<Product, kQuantizes, Ending::rounded>(queue, weight, x_values, x, out);
  launch(queue, "linear", multiply<Product, kQuantizes, Ending::rounded>, started.shape,
         started.of);
}

template <class Product>
void start_rows_pair(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
                     const Fp8Product& second, bool late) {
  const auto prepare = [&](const Fp8Product& product) {
    return prepared<Product, false, Ending::rounded>(queue, product.weight, nullptr, x,
                                                     product.out);
  };
  const Started one = prepare(first), other = prepare(second);
  const int of_first = one.of.tiles * one.shape.cluster;
  const int blocks = of_first + other.of.tiles * other.shape.cluster;
  FewPair pair{one.of, other.of, of_first, blocks};
  pair.first.late = pair.second.late = late;
  LaunchShape shape = one.shape;
  shape.blocks = static_cast<unsigned>(blocks);
  shape.shared_bytes = std::max(one.shape.shared_bytes, other.shape.shared_bytes);
  launch(queue, "linear", multiply_rows_pair<Product>, shape, pair);
}

}  // namespace

void multiply_fp8_few(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                      const Fp8Output& out) {
  if (x.rows <= 8) {
    start<WeightTimesTokens<8>>(queue, weight, nullptr, x, out);
  } else if (x.rows <= 16) {
    start<WeightTimesTokens<16>>(queue, weight, nullptr, x, out);
  } else if (x.rows <= TokensTimesWeight<>::kTokens && takes_high_tiles(weight)) {
    start<TokensTimesWeight<3>>(queue, weight, nullptr, x, out);
  } else {
    start<TokensTimesWeight<>>(queue, weight, nullptr, x, out);
  }
}

bool fits_few_pair(const DenseMatrix& first, const DenseMatrix& second, int64_t rows) {
  // Blocks of a kernel are clusters of one size.
  return rows <= TokensTimesWeight<>::kTokens && fits_few(first, rows) && fits_few(second, rows) &&
         cut_fp8(first.rows, first.columns).chunks == cut_fp8(second.rows, second.columns).chunks;
}

void multiply_fp8_few_pair(Queue& queue, const QuantizedRows& x, const Fp8Product& first,
                           const Fp8Product& second, bool late) {
  const auto start = x.rows <= 8    ? start_rows_pair<WeightTimesTokens<8>>
                     : x.rows <= 16 ? start_rows_pair<WeightTimesTokens<16>>
                                    : start_rows_pair<TokensTimesWeight<>>;
  start(queue, x, first, second, late);
}

bool fits_few(const DenseMatrix& weight, int64_t rows) {
  const Fp8Cut cut = cut_fp8(weight.rows, weight.columns);
  const int64_t groups = (rows + TokensTimesWeight<>::kTokens - 1) / TokensTimesWeight<>::kTokens;
  return cut.most_steps() <= kMaxSteps &&
         (groups == 1 || tiles_of(weight) * cut.chunks * groups <= kMostBlocks);
}

bool quantizes_itself(const DenseMatrix& weight, int64_t rows) {
  const int steps = cut_fp8(weight.rows, weight.columns).most_steps();
  return rows <= 8 && steps <= kMaxKeptSteps && rows * steps <= kMaxQuantized;
}

bool linear_fp8_few(Queue& queue, const DenseMatrix& weight, const bf16* x, int64_t rows,
                    const Fp8Output& out) {
  using Product = WeightTimesTokens<8>;
  const QuantizedRows shape{.rows = rows, .columns = weight.columns};
  if (out.norm != nullptr) {
    const auto kernel = multiply<Product, true, Ending::normed>;
    const Started started = prepared<Product, true, Ending::normed>(queue, weight, x, shape, out);
    if (started.takes_norm() &&
        clusters_at_once(kernel, started.shape.cluster,
                         static_cast<int>(started.shape.shared_bytes)) >= started.of.tiles) {
      launch(queue, "linear", kernel, started.shape, started.of);
      return true;
    }
  }
  if (takes_high_tiles(weight)) {
    start<WeightTimesTokens<8, 3>, true>(queue, weight, x, shape, out);
  } else {
    start<Product, true>(queue, weight, x, shape, out);
  }
  return false;
}

bool linear_fp8_few_pair(Queue& queue, const View<const bf16>& x, const Fp8Product& first,
                         const Fp8Product& second) {
  const int64_t rows = x.extent(0);
  const QuantizedRows shape{.rows = rows, .columns = first.weight.columns};
  const auto prepare = [&](const Fp8Product& product) {
    return prepared<Few8, true, Ending::normed>(queue, product.weight, x.data, shape, product.out);
  };
  const Started one = prepare(first);
  Started other = prepare(second);
  const int chunks = one.shape.cluster, tiles = one.of.tiles + other.of.tiles;
  static_assert(kMixBlocks % kMaxChunks == 0);
  const int mix_clusters = kMixBlocks / chunks;
  const size_t shared_bytes = std::max(one.shape.shared_bytes, sizeof(MixShared));
  if (!one.takes_norm() || !other.takes_norm() || other.shape.cluster != chunks ||
      other.shape.shared_bytes != one.shape.shared_bytes ||
      clusters_at_once(multiply_pair, chunks, static_cast<int>(shared_bytes)) <
          tiles + mix_clusters) {
    return false;
  }
  // Behind the first one's words.
  other.of.norm_sums += 1 + Few8::kTokens * kMaxNormTiles;
  const int blocks = tiles * chunks;
  const Bytes written[] = {written_by(first, rows), written_by(second, rows)};
  const auto mixes = queue.held().take_mixes(rows, {x, written[0], written[1]});
  // Products with BF16 weights have a kernel of their own, which runs beside this one.
  const auto of_mixes = mixes ? memory_of(*mixes) : MixMemory{};
  std::optional<HeldCompression> behind;
  const auto beside = queue.held().take_products(
      x, {written[0], written[1], of_mixes[0], of_mixes[1], of_mixes[2], of_mixes[3]}, behind);
  FewPair pair{one.of, other.of, one.of.tiles * chunks, blocks};
  pair.first.late = pair.second.late = beside.has_value();
  launch(queue, "linear", multiply_pair,
         {.blocks = dim3(static_cast<unsigned>(blocks + (mixes ? kMixBlocks : 0))),
          .threads = Few8::kThreads,
          .shared_bytes = mixes ? shared_bytes : one.shape.shared_bytes,
          .cluster = chunks},
         pair, mixes.value_or(Mixes{}));
  if (beside) start_beside(queue, *beside);
  if (behind) queue.held().hold(queue, *behind);
  return true;
}

bool fits_turning(const DenseMatrix& weight, int64_t rows) {
  return quantizes_itself(weight, rows) && cut_fp8(weight.rows, weight.columns).chunks == 1;
}

void linear_fp8_few_turned(Queue& queue, const DenseMatrix& weight, const bf16* x, bf16* y,
                           const WindowRows& rows, int64_t tokens, const AttentionParameters& keys,
                           const std::optional<HeldCompression>& compression) {
  const QuantizedRows shape{.rows = tokens, .columns = weight.columns};
  Started started =
      prepared<WeightTimesTokens<8>, true, Ending::turned>(queue, weight, x, shape, {.y = y});
  started.of.turning = {.positions = rows.positions,
                        .frequencies = rows.frequencies,
                        .head_dim = rows.head_dim,
                        .pairs = rows.pairs,
                        .packed = keys.packed};
  LaunchShape& launched = started.shape;
  const auto others = keys.packed != nullptr ? packing_blocks(keys) : static_cast<int>(tokens);
  launched.blocks.x += static_cast<unsigned>(others);
  if (compression) {
    launched.shared_bytes = std::max(launched.shared_bytes, sizeof(KeptCompressionShared));
    return launch(queue, "linear", multiply_and_turn<true>, launched, started.of, rows,
                  kept_compression(*compression));
  }
  if (keys.packed != nullptr)
    launched.shared_bytes = std::max(launched.shared_bytes, static_cast<size_t>(kPackingBytes));
  launch(queue, "linear", multiply_and_turn<false>, launched, started.of, rows, keys);
}

}  // namespace cachalot::cuda
