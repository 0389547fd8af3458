// The vision tower's operations on its released widths: 16 heads of 64, 1024 and 2816 channels.
#include "on_gpu.h"

namespace cachalot {
namespace {

ImageAttentionArgs attention_args(RandomTensors& random, int64_t tokens, int64_t columns,
                                  int64_t heads, int64_t head_dim, float deviation) {
  return {.qkv = random.bf16s({tokens, 3, heads, head_dim}, deviation),
          .columns = columns,
          .frequencies = random.frequencies(head_dim / 4),
          .scale = 0.125f,
          .o = random.tensor<bf16>({tokens, heads, head_dim})};
}

TEST(ImageAttention, AgreesOnReleasedHeads) {
  for (const int64_t rows : {1, 7, 13, 37}) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    RandomTensors random(1);
    const ImageAttentionArgs args = attention_args(random, rows * 19, 19, 2, 64, 1);
    CACHALOT_EXPECT_GPU_AGREES(image_attention, args);
  }
}

// Scores far apart: a few keys take all of the attention, and the maximum moves late.
TEST(ImageAttention, AgreesOnSharpScores) {
  RandomTensors random(2);
  const ImageAttentionArgs args = attention_args(random, 20 * 21, 21, 3, 64, 4);
  CACHALOT_EXPECT_GPU_AGREES(image_attention, args);
}

TEST(ImageAttention, AgreesOnOtherHeads) {
  RandomTensors random(3);
  const ImageAttentionArgs args = attention_args(random, 11 * 9, 9, 2, 80, 1);
  CACHALOT_EXPECT_GPU_AGREES(image_attention, args);
}

TEST(VisionTower, AgreesOnReleasedWidths) {
  RandomTensors random(4);
  const ResidualNormArgs norm{.update = random.bf16s({70, 1024}),
                              .norm = random.bf16s({1024}, 0.1f, 1),
                              .norm_eps = 1e-6f,
                              .stream = random.bf16s({70, 1024}),
                              .x = random.tensor<bf16>({70, 1024})};
  CACHALOT_EXPECT_GPU_AGREES(residual_norm, norm);
  const GatedUnitArgs gate{.gate_up = random.bf16s({70, 2 * 2816}, 2),
                           .h = random.tensor<bf16>({70, 2816})};
  CACHALOT_EXPECT_GPU_AGREES(gated_unit, gate);
  const UnfoldCellsArgs cells{.x = random.bf16s({70, 1024}),
                              .columns = 10,
                              .ratio = 3,
                              .cells = random.tensor<bf16>({12, 1024 * 9})};
  CACHALOT_EXPECT_GPU_AGREES(unfold_cells, cells);
  const GeluArgs gelu_args{.x = random.bf16s({20, 5120}, 3)};
  CACHALOT_EXPECT_GPU_AGREES(gelu, gelu_args);
}

}  // namespace
}  // namespace cachalot
