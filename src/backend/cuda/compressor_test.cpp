// compress_kv and index_keys on shapes of the released model, and in any chunks.
#include <cmath>

#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kHeadDim = 512, kWidth = 128, kPageTokens = 256, kPages = 4, kSlots = 3;
constexpr int64_t kRollback = 8;
constexpr float kNormEps = 1e-20f;

CompressKvArgs compression(RandomTensors& random, const std::vector<SequencePart>& parts,
                           int64_t ratio) {
  const StepRows rows = random.step(parts);
  const int64_t tokens = rows.tokens();
  CompressKvArgs args{.rows = rows,
                      .ratio = ratio,
                      .kv = random.floats({tokens, kHeadDim}),
                      .norm = random.bf16s({kHeadDim}, 0.1f, 1),
                      .norm_eps = kNormEps,
                      .frequencies = random.frequencies(32),
                      .latent = random.tensor<bf16>({tokens, kHeadDim}),
                      .latents = random.latents(kSlots, kPages, kPageTokens / ratio, kHeadDim)};
  if (ratio == 1) return args;
  args.gate = random.floats({tokens, kHeadDim}, 3);
  args.open_rows = random.floats({kSlots, ratio - 1 + kRollback, 2, kHeadDim});
  return args;
}

TEST(CompressKv, AgreesOnReleasedShapes) {
  for (const int64_t ratio : {1, 2, 4}) {
    SCOPED_TRACE(ratio);
    RandomTensors random(static_cast<uint32_t>(ratio));
    const CompressKvArgs args = compression(random,
                                            {{.slot = 2, .first = 701},
                                             {.slot = 0, .first = 1, .count = 60},
                                             {.slot = 1, .first = 998, .count = 6}},
                                            ratio);
    CACHALOT_EXPECT_GPU_AGREES(compress_kv, args);
  }
}

TEST(IndexKeys, AgreesOnReleasedShapesInFewAndManyRows) {
  for (const int32_t count : {1, 5, 600}) {
    SCOPED_TRACE(count);
    RandomTensors random(static_cast<uint32_t>(count));
    const std::vector<SequencePart> parts{{.slot = 1, .first = 377, .count = count}};
    const IndexKeysArgs args{.rows = random.step(parts),
                             .ratio = 2,
                             .latent = random.bf16s({count, kHeadDim}),
                             .weight = random.bf16_matrix(kWidth, kHeadDim).values,
                             .norm = random.bf16s({kWidth}, 0.1f, 1),
                             .norm_eps = kNormEps,
                             .frequencies = random.frequencies(32),
                             .keys = random.index_keys(kSlots, kPages, kPageTokens / 2, kWidth)};
    CACHALOT_EXPECT_GPU_AGREES(index_keys, args);
  }
}

// A prompt in one step leaves what it leaves in chunks: latents, keys and open rows.
TEST(CompressKv, ChunksLeaveWhatTheWholeLeaves) {
  mirrored::Queue queue(gpu_queue());
  for (const int64_t ratio : {2, 4}) {
    RandomTensors random(9);
    const CompressKvArgs whole =
        compression(random, {{.slot = 1, .first = 0, .count = 300}}, ratio);
    const View<const bf16> weight = random.bf16_matrix(kWidth, kHeadDim).values;
    const View<bf16> norm = random.bf16s({kWidth}, 0.1f, 1);
    const auto run = [&](int64_t chunk) {
      RandomTensors caches(11);
      CompressKvArgs args = whole;
      args.open_rows = caches.tensor<float>(whole.open_rows.shape);
      args.latents = caches.latents(kSlots, kPages, kPageTokens / ratio, kHeadDim);
      IndexKeysArgs keys{.ratio = ratio,
                         .weight = weight,
                         .norm = norm,
                         .norm_eps = kNormEps,
                         .frequencies = whole.frequencies,
                         .keys = caches.index_keys(kSlots, kPages, kPageTokens / ratio, kWidth)};
      for (int64_t first = 0; first < 300; first += chunk) {
        const int64_t count = std::min<int64_t>(chunk, 300 - first);
        args.rows = caches.step({{.slot = 1,
                                  .first = static_cast<int32_t>(first),
                                  .count = static_cast<int32_t>(count)}});
        args.kv = {whole.kv.row(first), {count, kHeadDim}};
        args.gate = {whole.gate.row(first), {count, kHeadDim}};
        args.latent = caches.tensor<bf16>({count, kHeadDim});
        compress_kv(queue, args);
        keys.rows = args.rows;
        keys.latent = args.latent;
        index_keys(queue, keys);
      }
      args.latent = {};
      std::vector<std::byte> out = written_bytes(args), more = written_bytes(keys);
      out.insert(out.end(), more.begin(), more.end());
      return out;
    };
    const std::vector<std::byte> expected = run(300);
    for (const int64_t chunk : {1, 3, 64, 299}) EXPECT_EQ(run(chunk), expected) << chunk;
  }
}

}  // namespace
}  // namespace cachalot
