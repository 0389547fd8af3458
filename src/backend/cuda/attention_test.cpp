// prepare_query and write_window on the shapes of the released model.
#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kHeads = 64, kHeadDim = 512;

PrepareQueryArgs query_args(RandomTensors& random, const std::vector<SequencePart>& parts) {
  PrepareQueryArgs args{.rows = random.step(parts), .frequencies = random.frequencies(32)};
  const int64_t tokens = args.rows.tokens();
  args.q = random.bf16s({tokens, kHeads, kHeadDim});
  args.kv = random.bf16s({tokens, kHeadDim});
  args.window_rows = random.tensor<uint8_t>({tokens, window_row_bytes(kHeadDim)});
  return args;
}

TEST(GpuPrepareQuery, AgreesOnReleasedShapes) {
  RandomTensors random(1);
  const PrepareQueryArgs args = query_args(
      random, {{.slot = 1, .first = 1048570, .count = 6}, {.slot = 0, .first = 0, .count = 30}});
  CACHALOT_EXPECT_GPU_AGREES(prepare_query, args);
}

TEST(GpuPrepareQuery, QuantizesTinyAndLargeValues) {
  RandomTensors random(2);
  PrepareQueryArgs args = query_args(random, {{.slot = 0, .first = 77, .count = 4}});
  // Zeros, values below the least scale, ordinary ones, and ones beyond FP16.
  const View<bf16> kv{const_cast<bf16*>(args.kv.data), args.kv.shape};
  const float sizes[] = {0, 1e-6f, 1, 1e6f};
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t i = 0; i < kHeadDim; ++i) {
      kv.row(t)[i] = to_bf16(to_float(kv.row(t)[i]) * sizes[t]);
    }
  }
  CACHALOT_EXPECT_GPU_AGREES(prepare_query, args);
}

TEST(GpuWriteWindow, KeepsTheLastRowsOfLongChunks) {
  RandomTensors random(3);
  const int64_t row_bytes = window_row_bytes(kHeadDim);
  WriteWindowArgs args{.rows = random.step({{.slot = 2, .first = 90, .count = 300},
                                            {.slot = 0, .first = 0, .count = 1},
                                            {.slot = 1, .first = 4000, .count = 133}})};
  args.window_rows = random.window_rows({args.rows.tokens(), row_bytes}, kHeadDim);
  args.ring = random.window_rows({3, 133, row_bytes}, kHeadDim);
  CACHALOT_EXPECT_GPU_AGREES(write_window, args);
}

}  // namespace
}  // namespace cachalot
