#include "model/vision_weights.h"

#include <algorithm>

#include "model/rotary.h"

namespace cachalot {
namespace {

int64_t rounded_up(int64_t value) { return blocks_of(value) * kScaleBlock; }

DenseMatrix matrix(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry& weight = checkpoint.at(name + ".weight");
  return {.rows = weight.shape[0],
          .columns = weight.shape[1],
          .codes = {},
          .scales = {},
          .values = weight.view<bf16>()};
}

BiasedMatrix biased(const Checkpoint& checkpoint, const std::string& name) {
  return {.weight = matrix(checkpoint, name), .bias = checkpoint.at(name + ".bias").view<bf16>()};
}

VisionBlockWeights bind_block(const Checkpoint& checkpoint, const std::string& name) {
  return {.attention_norm = checkpoint.at(name + ".norm1.weight").view<bf16>(),
          .wqkv = biased(checkpoint, name + ".attn.wqkv"),
          .wo = biased(checkpoint, name + ".attn.wo"),
          .mlp_norm = checkpoint.at(name + ".norm2.weight").view<bf16>(),
          .w1 = matrix(checkpoint, name + ".mlp.w1"),
          .w2 = matrix(checkpoint, name + ".mlp.w2")};
}

}  // namespace

Result<VisionWeights> VisionWeights::bind(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  if (!config.has_vision()) return fail("this model has no vision tower: it cannot see pictures");
  for (const int64_t width : {config.vision_dim, config.vision_inter_dim}) {
    if (width % kScaleBlock != 0) {
      return fail("vision_dim and vision_inter_dim must be multiples of {}, found {}", kScaleBlock,
                  width);
    }
  }
  VisionWeights weights;
  weights.patch_embed = biased(checkpoint, "vision.patch_embed.proj");
  DenseMatrix& embed = weights.patch_embed.weight;
  weights.patch_width = rounded_up(embed.columns);
  const bf16* padded = embed.values.data;  // planned: there is nothing to copy
  if (!checkpoint.is_planned()) {
    weights.patch_values_.resize(static_cast<size_t>(embed.rows * weights.patch_width));
    for (int64_t row = 0; row < embed.rows; ++row) {
      std::copy_n(embed.values.row(row), embed.columns,
                  weights.patch_values_.data() + row * weights.patch_width);
    }
    padded = weights.patch_values_.data();
  }
  embed.columns = weights.patch_width;
  embed.values = {padded, {embed.rows, embed.columns}};
  for (int64_t block = 0; block < config.vision_n_layers; ++block) {
    weights.blocks.push_back(bind_block(checkpoint, fmt::format("vision.blocks.{}", block)));
  }
  weights.norm = checkpoint.at("vision.norm.weight").view<bf16>();
  weights.aligner_w1 = biased(checkpoint, "aligner.w1");
  weights.aligner_w2 = biased(checkpoint, "aligner.w2");
  weights.start = checkpoint.at("image_start").view<bf16>();
  weights.newline = checkpoint.at("image_newline").view<bf16>();
  weights.end = checkpoint.at("image_end").view<bf16>();
  weights.frequencies = rope_frequencies(config.vision_dim / config.vision_n_heads / 2,
                                         config.vision_rope_theta, 0, 1, 0, 0);
  return weights;
}

Status VisionWeights::place_in(const MemorySpace& memory) {
  Status status;
  const auto place = [&](auto& view) {
    if (view.absent() || !status) return;
    const auto bytes = static_cast<size_t>(view.bytes());
    std::unique_ptr<void, ReleaseTo> block(memory.allocate(bytes), ReleaseTo{&memory});
    if (block == nullptr) {
      status = fail("no room on the device for the vision tower");
      return;
    }
    memory.copy(block.get(), view.data, bytes);
    view.data = static_cast<decltype(view.data)>(block.get());
    placed_.push_back(std::move(block));
  };
  const auto place_biased = [&](BiasedMatrix& matrix) {
    place(matrix.weight.values);
    place(matrix.bias);
  };
  place_biased(patch_embed);
  for (VisionBlockWeights& block : blocks) {
    place(block.attention_norm);
    place_biased(block.wqkv);
    place_biased(block.wo);
    place(block.mlp_norm);
    place(block.w1.values);
    place(block.w2.values);
  }
  place(norm);
  place_biased(aligner_w1);
  place_biased(aligner_w2);
  View<const float> angles = placed_frequencies();
  place(angles);
  placed_frequencies_ = angles.data;
  return status;
}

}  // namespace cachalot
