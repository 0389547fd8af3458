#include "model/vision_tower.h"

#include <cmath>

#include "model/queues.h"

namespace cachalot {
namespace {

constexpr float kNormEps = 1e-6f;

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
void biased_linear(Q& queue, View<const bf16> x, const BiasedMatrix& matrix, View<bf16> y) {
  linear(queue, LinearArgs{.x = x, .weight = matrix.weight, .bias = matrix.bias, .y = y});
}

template <class Q>
void attend(Q& queue, const Sight& sight, const VisionBlockWeights& weights) {
  const int64_t n = sight.grid.patches(), dim = sight.config.vision_dim;
  const int64_t heads = sight.config.vision_n_heads, head_dim = dim / heads;
  ArenaScope scope(queue.arena());
  View<bf16> qkv = queue.arena().template allocate<bf16>({n, 3 * dim});
  biased_linear(queue, sight.x, weights.wqkv, qkv);
  qkv.shape = {n, 3, heads, head_dim};
  View<bf16> o = queue.arena().template allocate<bf16>({n, heads, head_dim});
  image_attention(
      queue,
      ImageAttentionArgs{.qkv = qkv,
                         .columns = sight.grid.columns,
                         .frequencies = sight.frequencies,
                         .scale = static_cast<float>(std::pow(static_cast<double>(head_dim), -0.5)),
                         .o = o});
  o.shape = {n, dim};
  biased_linear(queue, o, weights.wo, sight.update);
}

template <class Q>
void think(Q& queue, const Sight& sight, const VisionBlockWeights& weights) {
  const int64_t n = sight.grid.patches(), width = sight.config.vision_inter_dim;
  ArenaScope scope(queue.arena());
  const View<bf16> gate_up = queue.arena().template allocate<bf16>({n, 2 * width});
  linear(queue, LinearArgs{.x = sight.x, .weight = weights.w1, .y = gate_up});
  const View<bf16> h = queue.arena().template allocate<bf16>({n, width});
  gated_unit(queue, GatedUnitArgs{.gate_up = gate_up, .h = h});
  linear(queue, LinearArgs{.x = h, .weight = weights.w2, .y = sight.update});
}

template <class Q>
void align(Q& queue, const Sight& sight, const VisionWeights& weights, View<bf16> features) {
  const int64_t ratio = sight.config.vision_downsample_ratio;
  const int64_t tokens = features.extent(0);
  const View<bf16> cells =
      queue.arena().template allocate<bf16>({tokens, sight.config.vision_dim * ratio * ratio});
  unfold_cells(
      queue,
      UnfoldCellsArgs{.x = sight.x, .columns = sight.grid.columns, .ratio = ratio, .cells = cells});
  const View<bf16> hidden =
      queue.arena().template allocate<bf16>({tokens, weights.aligner_w1.weight.rows});
  biased_linear(queue, cells, weights.aligner_w1, hidden);
  gelu(queue, GeluArgs{.x = hidden});
  biased_linear(queue, hidden, weights.aligner_w2, features);
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
                    .frequencies = {weights.frequencies.data(),
                                    {static_cast<int64_t>(weights.frequencies.size())}},
                    .stream = arena.allocate<bf16>({n, config.vision_dim}),
                    .x = arena.allocate<bf16>({n, config.vision_dim}),
                    .update = arena.allocate<bf16>({n, config.vision_dim})};
  queue.label("patches");
  biased_linear(queue, patches, weights.patch_embed, sight.stream);
  View<const bf16> update;  // of the sublayer before; nothing came before the first
  const auto normed = [&](View<const bf16> norm) {
    residual_norm(queue, ResidualNormArgs{.update = update,
                                          .norm = norm,
                                          .norm_eps = kNormEps,
                                          .stream = sight.stream,
                                          .x = sight.x});
    update = sight.update;
  };
  for (size_t block = 0; block < weights.blocks.size(); ++block) {
    queue.label("vision block " + std::to_string(block));
    normed(weights.blocks[block].attention_norm);
    attend(queue, sight, weights.blocks[block]);
    normed(weights.blocks[block].mlp_norm);
    think(queue, sight, weights.blocks[block]);
  }
  queue.label("aligner");
  normed(weights.norm);
  align(queue, sight, weights, features);
  return features;
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
