// sparse_attention on the shapes of the released model: against the reference, and a token's bits
// in every company and with every number of blocks.
#include "backend/cuda/sparse_attention.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/held_operation.h"
#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kHeads = 64, kHeadDim = 512, kWindow = 128, kRingRows = 133, kTopK = 512;
constexpr int64_t kSlots = 3, kPages = 25, kRowsPerPage = 32;

struct Variant {
  bool latents = true, window_starts = false;
  bool any_count = false;  // of latents: none, all or any number of those visible
  int64_t block = 0, window = kWindow, top_k = kTopK;
};

int64_t any_count(RandomTensors& random, int64_t most) {
  std::mt19937& engine = random.engine();
  switch (engine() % 4) {
    case 0:
      return 0;
    case 1:
      return 1 + engine() % 40;
    case 2:
      return most;
    default:
      return engine() % (most + 1);
  }
}

SparseAttentionArgs attention_args(RandomTensors& random, const std::vector<SequencePart>& parts,
                                   const Variant& of) {
  SparseAttentionArgs args{.rows = random.step(parts)};
  const int64_t tokens = args.rows.tokens(), row_bytes = window_row_bytes(kHeadDim);
  args.q = random.bf16s({tokens, kHeads, kHeadDim});
  args.window_rows = random.window_rows({tokens, row_bytes}, kHeadDim);
  args.ring = random.window_rows({kSlots, kRingRows, row_bytes}, kHeadDim);
  args.window = of.window;
  args.block = of.block;
  if (of.window_starts) {
    const View<int32_t> starts = random.tensor<int32_t>({tokens});
    for (int64_t t = 0; t < tokens; ++t) starts.data[t] = std::max(0, args.rows.start_of(t) - 21);
    args.window_starts = starts;
  }
  if (of.latents) {
    // One latent per two positions, every third of them chosen once there are many.
    const View<int32_t> chosen = random.tensor<int32_t>({tokens, of.top_k});
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t visible =
          std::min<int64_t>((args.rows.positions.data[t] + 1) / 2, kPages * kRowsPerPage);
      const int64_t step = visible > 3 * of.top_k / 2 ? visible / of.top_k : 1;
      const int64_t most = of.any_count ? any_count(random, of.top_k) : of.top_k;
      for (int64_t i = 0; i < of.top_k; ++i) {
        const bool there = i < most && i * step < visible;
        chosen.row(t)[i] = there ? static_cast<int32_t>(i * step) : -1;
      }
    }
    args.chosen = chosen;
    const PagedRows<uint8_t> latents = random.latents(kSlots, kPages, kRowsPerPage, kHeadDim);
    args.latents = {latents.rows, latents.table};
  }
  args.sink = random.floats({kHeads});
  args.frequencies = random.frequencies(32);
  args.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
  args.o = random.tensor<bf16>({tokens, kHeads, kHeadDim});
  return args;
}

// What the operation writes for `args`, run by run(queue, args).
template <class Run>
std::vector<std::byte> output_of(const SparseAttentionArgs& args, Run run) {
  mirrored::Queue mirror(gpu_queue());
  mirror.run(args, run);
  return written_bytes(args);
}

std::vector<std::byte> output_with(int blocks, const SparseAttentionArgs& args) {
  return output_of(args, [&](cuda::Queue& queue, const SparseAttentionArgs& on) {
    cuda::sparse_attention_in_tiles(queue, on, blocks);
  });
}

// The second of two, when all keys but this step's rows are settled.
std::vector<std::byte> output_behind_another(int blocks, const SparseAttentionArgs& args) {
  return output_of(args, [&](cuda::Queue& queue, const SparseAttentionArgs& on) {
    cuda::sparse_attention_in_tiles(queue, on, blocks);
    queue.held().note_attention();
    EXPECT_TRUE(queue.held().settled({on.ring, on.chosen, on.latents.rows}));
    cuda::sparse_attention_in_tiles(queue, on, blocks);
    queue.held().forget_attention();
  });
}

TEST(GpuSparseAttention, AgreesOnReleasedShapes) {
  RandomTensors random(1);
  const SparseAttentionArgs args = attention_args(random,
                                                  {{.slot = 1, .first = 1500, .count = 2},
                                                   {.slot = 0, .first = 0, .count = 3},
                                                   {.slot = 2, .first = 140, .count = 2}},
                                                  {});
  ASSERT_TRUE(cuda::sparse_attention_fits_tiles(args));
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention, args);
}

TEST(GpuSparseAttention, AgreesWithTheWindowAlone) {
  RandomTensors random(2);
  const std::vector<SequencePart> parts = {{.slot = 1, .first = 1500, .count = 4},
                                           {.slot = 0, .first = 2, .count = 5}};
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention, attention_args(random, parts, {.latents = false}));
}

// As many as a block holds beside a window of one tile.
TEST(GpuSparseAttention, AgreesWithMoreLatentsAndAShortWindow) {
  RandomTensors random(8);
  const SparseAttentionArgs args = attention_args(
      random, {{.slot = 1, .first = 1500, .count = 2}, {.slot = 0, .first = 1158, .count = 3}},
      {.window = 64, .top_k = 576});
  ASSERT_TRUE(cuda::sparse_attention_fits_tiles(args));
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention, args);
  const std::vector<std::byte> one = output_with(1, args);
  for (const int blocks : {2, 4, 8}) EXPECT_EQ(one, output_with(blocks, args)) << blocks;
}

TEST(GpuSparseAttention, AgreesOnDraftBlocksAndLateWindows) {
  RandomTensors random(3);
  const std::vector<SequencePart> blocks = {{.slot = 1, .first = 700, .count = 5},
                                            {.slot = 0, .first = 3, .count = 5}};
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention,
                             attention_args(random, blocks, {.latents = false, .block = 5}));
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention,
                             attention_args(random, blocks, {.window_starts = true}));
}

TEST(GpuSparseAttention, IsTheSameWithEveryNumberOfBlocks) {
  RandomTensors random(4);
  const std::vector<SequencePart> parts = {{.slot = 1, .first = 1490, .count = 12},
                                           {.slot = 0, .first = 0, .count = 40},
                                           {.slot = 2, .first = 120, .count = 30}};
  for (const bool latents : {true, false}) {
    const SparseAttentionArgs args = attention_args(random, parts, {.latents = latents});
    const std::vector<std::byte> one = output_with(1, args);
    for (const int blocks : {2, 4, 8}) {
      EXPECT_EQ(one, output_with(blocks, args)) << blocks << " blocks, latents " << latents;
      EXPECT_EQ(one, output_behind_another(blocks, args)) << blocks << " blocks behind another";
    }
    EXPECT_EQ(one, output_with(1, args)) << "again";
  }
}

// The beginning of a prompt: more tokens than the GPU has multiprocessors, each with another number
// of keys than its neighbours.
TEST(GpuSparseAttention, OfAPromptIsTheSameWithEveryNumberOfBlocks) {
  RandomTensors random(6);
  for (const bool latents : {true, false}) {
    const SparseAttentionArgs args =
        attention_args(random, {{.slot = 1, .first = 0, .count = 400}}, {.latents = latents});
    const std::vector<std::byte> eight = output_with(8, args);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(output_with(1, args), eight) << "latents " << latents;
  }
}

// Neighbours with unequal numbers of keys, of both kinds: from one of the window alone to all.
TEST(GpuSparseAttention, TakesAnyNumbersOfKeys) {
  RandomTensors random(7);
  const auto parts = [](int32_t count) {
    return std::vector<SequencePart>{{.slot = 1, .first = 0, .count = count},
                                     {.slot = 0, .first = 100, .count = count},
                                     {.slot = 2, .first = 1100, .count = count}};
  };
  CACHALOT_EXPECT_GPU_AGREES(sparse_attention,
                             attention_args(random, parts(4), {.any_count = true}));
  for (int i = 0; i < 3; ++i) {
    const SparseAttentionArgs args = attention_args(random, parts(140), {.any_count = true});
    const std::vector<std::byte> eight = output_with(8, args);
    for (const int blocks : {1, 1, 1, 2, 4}) {
      EXPECT_EQ(output_with(blocks, args), eight) << blocks << " blocks";
      EXPECT_EQ(output_behind_another(blocks, args), eight) << blocks << " blocks behind another";
    }
  }
}

TEST(GpuSparseAttention, OfATokenAloneIsTheSameAsInABatch) {
  RandomTensors random(5);
  const SparseAttentionArgs all = attention_args(random,
                                                 {{.slot = 1, .first = 1300, .count = 1},
                                                  {.slot = 0, .first = 33, .count = 1},
                                                  {.slot = 2, .first = 70, .count = 150}},
                                                 {});
  const auto run = [](cuda::Queue& queue, const SparseAttentionArgs& on) {
    sparse_attention(queue, on);
  };
  const std::vector<std::byte> batch = output_of(all, run);
  const size_t bytes_per_token = kHeads * kHeadDim * sizeof(bf16);
  for (const int64_t token : {0, 1}) {
    SparseAttentionArgs alone = all;
    const auto slice = [&](auto& view, Shape shape) {
      view.data += token * view.stride();
      view.shape = shape;
    };
    slice(alone.rows.positions, {1});
    slice(alone.rows.slots, {1});
    alone.rows.first_rows = random.tensor<int32_t>({1});
    slice(alone.q, {1, kHeads, kHeadDim});
    slice(alone.window_rows, {1, window_row_bytes(kHeadDim)});
    slice(alone.chosen, {1, kTopK});
    slice(alone.o, {1, kHeads, kHeadDim});
    const std::vector<std::byte> bits = output_of(alone, run);
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), batch.begin() + token * bytes_per_token))
        << "token " << token;
  }
}

}  // namespace
}  // namespace cachalot
