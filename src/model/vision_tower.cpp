#include "model/vision_tower.h"

#include <cmath>

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr float kNormEps = 1e-6f;

constexpr Part kVision{
    .slug = "vision",
    .title = "Vision tower and aligner",
    .sentence = "Turns a picture's patches into one row per token of the text model.",
    .dimensions =
        "vision_dim, dim, -: vision_n_layers, -: vision_patch_size, -: vision_downsample_ratio, "
        "-: vision_max_n_token",
    .account = "vision",
    .cost_unit = "picture",
    .top = true};

constexpr Part kPatches{.slug = "patches",
                        .title = "Patch embedding",
                        .sentence =
                            "Projects the pixels of each patch to the tower's width. Zeros fill "
                            "the pixels up to a multiple of 32 values.",
                        .formula = R"(h = W_p\, \mathrm{pixels} + b_p)",
                        .dimensions =
                            "x: '3 * vision_patch_size * vision_patch_size filled up to 32s', y: "
                            "vision_dim"};

constexpr Part kBlock{
    .slug = "block",
    .title = "Vision block",
    .sentence = "Full attention among the patches of the picture, then a gated unit.",
    .dimensions = "vision_dim, vision_n_heads, vision_inter_dim",
    .unit = "block"};

constexpr Part kImageAttention{
    .slug = "attention",
    .title = "Image attention",
    .sentence = "Every patch attends to every patch, rotated in two dimensions.",
    .formula = R"(y = W_o\, \mathrm{attention}(W_{qkv}\, x + b_{qkv}) + b_o)",
    .dimensions = "vision_dim, vision_n_heads"};

// Nothing came before the first block.
constexpr Part kFirstNorm{.slug = "norm",
                          .title = "Norm",
                          .sentence = "Norms the stream.",
                          .formula = R"(x = \mathrm{norm}(h))",
                          .dimensions = "vision_dim"};

constexpr Part kNorm{.slug = "norm",
                     .title = "Residual and norm",
                     .sentence = "Adds the sublayer before to the stream and norms the sum.",
                     .formula = R"(h \leftarrow h + y, \quad x = \mathrm{norm}(h))",
                     .dimensions = "vision_dim"};

constexpr Part kQkv{.slug = "qkv",
                    .title = "Query, key and value",
                    .sentence = "Makes queries, keys and values of all heads in one product.",
                    .formula = R"([q; k; v] = W_{qkv}\, x + b_{qkv})",
                    .dimensions = "x: vision_dim, y: 3 * vision_dim"};

constexpr Part kAttend{
    .slug = "attend",
    .title = "Attention among patches",
    .sentence = "Rotates queries and keys by row and column and averages the values by softmax.",
    .formula = R"(o = \mathrm{softmax}\big((R q)^\top (R k) / \sqrt d\big)\, v)",
    .dimensions =
        "frequencies: vision_dim / vision_n_heads / 4, qkv: 'q k v' | vision_n_heads | "
        "vision_dim / vision_n_heads, o: vision_n_heads | vision_dim / vision_n_heads, "
        "-: vision_rope_theta"};

constexpr Part kAttentionOutput{.slug = "output",
                                .title = "Output projection",
                                .sentence = "Mixes the heads.",
                                .formula = R"(y = W_o\, o + b_o)",
                                .dimensions = "vision_dim"};

constexpr Part kUnit{.slug = "unit",
                     .title = "Gated unit",
                     .sentence = "The block's second half.",
                     .formula = R"(y = W_2\big(\mathrm{silu}(W_g x) \odot W_u x\big))",
                     .dimensions = "vision_dim, vision_inter_dim"};

constexpr Part kGateUp{.slug = "gate-up",
                       .title = "Gate and up projection",
                       .sentence = "Makes gate and content of the unit in one product.",
                       .formula = R"([g; u] = W_1\, x)",
                       .dimensions = "x: vision_dim, y: 2 * vision_inter_dim"};

constexpr Part kGated{.slug = "gated",
                      .title = "Gating",
                      .sentence = "Multiplies the content with the gate's activation.",
                      .formula = R"(h = \mathrm{silu}(g) \odot u)",
                      .dimensions = "gate_up: 2 * vision_inter_dim, h: vision_inter_dim"};

constexpr Part kDown{.slug = "down",
                     .title = "Down projection",
                     .sentence = "Brings the unit back to the tower's width.",
                     .formula = R"(y = W_2\, h)",
                     .dimensions = "x: vision_inter_dim, y: vision_dim"};

constexpr Part kAligner{
    .slug = "aligner",
    .title = "Aligner",
    .sentence = "Joins neighbouring patches and projects them to the text model's width.",
    .formula = R"(r = W_2\, \mathrm{gelu}(W_1\, \mathrm{cell} + b_1) + b_2)",
    .dimensions = "vision_dim, dim, -: vision_downsample_ratio"};

constexpr Part kCells{
    .slug = "cells",
    .title = "Cells",
    .sentence =
        "Gathers the patches of each square cell of r x r channel by channel: all values of the "
        "first channel, row by row, then those of the next. Beyond the picture's bottom and right "
        "are zeros.",
    .formula = R"(\mathrm{cell}_{ij}[c\, r^2 + y\, r + z] = x_{ri + y,\, rj + z}[c])",
    .dimensions =
        "x: vision_dim, cells: vision_dim * vision_downsample_ratio * vision_downsample_ratio"};

constexpr Part kAlignerUp{
    .slug = "up",
    .title = "First projection",
    .sentence = "Projects a cell to the text model's width.",
    .formula = R"(h = W_1\, \mathrm{cell} + b_1)",
    .dimensions = "x: vision_dim * vision_downsample_ratio * vision_downsample_ratio, y: dim"};

constexpr Part kGelu{.slug = "gelu",
                     .title = "GELU",
                     .sentence = "The exact Gaussian error linear unit, in place.",
                     .formula = R"(h \leftarrow h\, \Phi(h))",
                     .dimensions = "dim"};

constexpr Part kAlignerDown{.slug = "down",
                            .title = "Second projection",
                            .sentence = "Gives the row that stands for the cell in the text model.",
                            .formula = R"(r = W_2\, h + b_2)",
                            .dimensions = "dim"};

constexpr Part kMarks{
    .slug = "marks",
    .title = "Marks of a span",
    .sentence =
        "Rows that begin a picture's span, end every line of it and end the span; they are "
        "copied beside the tower's rows, without arithmetic.",
    .dimensions = "dim"};

// A picture on its way through the blocks.
struct Sight {
  const ModelConfig& config;
  const PatchGrid& grid;
  View<const float> frequencies;
  View<bf16> stream;  // [patches, vision_dim]
  View<bf16> x;       // the same: a sublayer's normed input
  View<bf16> update;  // the same: its output, not yet in the stream
};

template <class Q>
void biased_linear(const Within<Q>& part, View<const bf16> x, const BiasedMatrix& matrix,
                   View<bf16> y) {
  linear(part.queue(), LinearArgs{.x = x, .weight = matrix.weight, .bias = matrix.bias, .y = y});
}

// Takes in the update of the sublayer before, if there was one.
template <class Q>
void add_and_norm(Q& queue, const Sight& sight, bool updated, View<const bf16> norm) {
  residual_norm(Within(queue, updated ? kNorm : kFirstNorm).queue(),
                ResidualNormArgs{.update = updated ? sight.update : View<bf16>(),
                                 .norm = norm,
                                 .norm_eps = kNormEps,
                                 .stream = sight.stream,
                                 .x = sight.x});
}

template <class Q>
void attend(Q& queue, const Sight& sight, const VisionBlockWeights& weights) {
  const int64_t n = sight.grid.patches(), dim = sight.config.vision_dim;
  const int64_t heads = sight.config.vision_n_heads, head_dim = dim / heads;
  const Within part(queue, kImageAttention);
  ArenaScope scope(queue.arena());
  View<bf16> qkv = queue.arena().template allocate<bf16>({n, 3 * dim});
  biased_linear(Within(queue, kQkv), sight.x, weights.wqkv, qkv);
  qkv.shape = {n, 3, heads, head_dim};
  View<bf16> o = queue.arena().template allocate<bf16>({n, heads, head_dim});
  image_attention(
      Within(queue, kAttend).queue(),
      ImageAttentionArgs{.qkv = qkv,
                         .columns = sight.grid.columns,
                         .frequencies = sight.frequencies,
                         .scale = static_cast<float>(std::pow(static_cast<double>(head_dim), -0.5)),
                         .o = o});
  o.shape = {n, dim};
  biased_linear(Within(queue, kAttentionOutput), o, weights.wo, sight.update);
}

template <class Q>
void think(Q& queue, const Sight& sight, const VisionBlockWeights& weights) {
  const int64_t n = sight.grid.patches(), width = sight.config.vision_inter_dim;
  const Within part(queue, kUnit);
  ArenaScope scope(queue.arena());
  const View<bf16> gate_up = queue.arena().template allocate<bf16>({n, 2 * width});
  linear(Within(queue, kGateUp).queue(),
         LinearArgs{.x = sight.x, .weight = weights.w1, .y = gate_up});
  const View<bf16> h = queue.arena().template allocate<bf16>({n, width});
  gated_unit(Within(queue, kGated).queue(), GatedUnitArgs{.gate_up = gate_up, .h = h});
  linear(Within(queue, kDown).queue(), LinearArgs{.x = h, .weight = weights.w2, .y = sight.update});
}

template <class Q>
void align(Q& queue, const Sight& sight, const VisionWeights& weights, View<bf16> features) {
  const int64_t ratio = sight.config.vision_downsample_ratio;
  const int64_t tokens = features.extent(0);
  const View<bf16> cells =
      queue.arena().template allocate<bf16>({tokens, sight.config.vision_dim * ratio * ratio});
  unfold_cells(
      Within(queue, kCells).queue(),
      UnfoldCellsArgs{.x = sight.x, .columns = sight.grid.columns, .ratio = ratio, .cells = cells});
  const View<bf16> hidden =
      queue.arena().template allocate<bf16>({tokens, weights.aligner_w1.weight.rows});
  biased_linear(Within(queue, kAlignerUp), cells, weights.aligner_w1, hidden);
  gelu(Within(queue, kGelu).queue(), GeluArgs{.x = hidden});
  biased_linear(Within(queue, kAlignerDown), hidden, weights.aligner_w2, features);
}

}  // namespace

template <class Q>
View<bf16> see(Q& queue, const ModelConfig& config, const VisionWeights& weights,
               const PatchGrid& grid, View<const bf16> patches) {
  Arena& arena = queue.arena();
  const int64_t n = grid.patches(), ratio = config.vision_downsample_ratio;
  const View<bf16> features =
      arena.allocate<bf16>({grid.cell_rows(ratio) * grid.cell_columns(ratio), config.dim});
  ArenaScope scope(arena);
  const Sight sight{.config = config,
                    .grid = grid,
                    .frequencies = weights.placed_frequencies(),
                    .stream = arena.allocate<bf16>({n, config.vision_dim}),
                    .x = arena.allocate<bf16>({n, config.vision_dim}),
                    .update = arena.allocate<bf16>({n, config.vision_dim})};
  const Within vision(queue, kVision);
  queue.label("patches");
  biased_linear(Within(queue, kPatches), patches, weights.patch_embed, sight.stream);
  for (size_t block = 0; block < weights.blocks.size(); ++block) {
    queue.label("vision block " + std::to_string(block));
    const Within part(queue, kBlock, static_cast<int64_t>(block));
    // Nothing came before the first block.
    add_and_norm(queue, sight, block > 0, weights.blocks[block].attention_norm);
    attend(queue, sight, weights.blocks[block]);
    add_and_norm(queue, sight, true, weights.blocks[block].mlp_norm);
    think(queue, sight, weights.blocks[block]);
  }
  queue.label("aligner");
  const Within aligner(queue, kAligner);
  add_and_norm(queue, sight, !weights.blocks.empty(), weights.norm);
  align(queue, sight, weights, features);
  return features;
}

void survey_marks(meta::Queue& queue, const VisionWeights& weights) {
  const Within vision(queue, kVision);
  const Within marks(queue, kMarks);
  queue.copied("copy", "start", weights.start);
  queue.copied("copy", "newline", weights.newline);
  queue.copied("copy", "end", weights.end);
}

size_t plan_vision_workspace(const ModelConfig& config, const VisionWeights& weights,
                             const PatchGrid& grid) {
  meta::Queue queue;
  see(queue, config, weights, grid,
      View<const bf16>(nullptr, {grid.patches(), weights.patch_width}));
  return queue.arena().peak();
}

#define CACHALOT_INSTANTIATE(Q)                                                           \
  template View<bf16> see(Q&, const ModelConfig&, const VisionWeights&, const PatchGrid&, \
                          View<const bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
