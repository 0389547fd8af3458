// route on the GPU at the size of the released model.
#include <algorithm>

#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120, kExperts = 384, kChoices = 6;

RouteArgs released_route(RandomTensors& random, int64_t tokens) {
  return {.x = random.bf16s({tokens, kDim}),
          .gate = random.bf16_matrix(kExperts, kDim).values,
          .bias = random.floats({kExperts}, 0.1f),
          .image_index = random.integers({tokens}, -1, -1),
          .route_scale = 2.5f,
          .ids = random.tensor<int32_t>({tokens, kChoices}),
          .weights = random.tensor<float>({tokens, kChoices})};
}

TEST(GpuRoute, AgreesAtTheReleasedSize) {
  RandomTensors random(1);
  for (const int64_t tokens : {1, 70}) {
    const RouteArgs args = released_route(random, tokens);
    CACHALOT_EXPECT_GPU_AGREES(route, args);
  }
}

// Every token's experts and weights to the bit, whatever the tiles of the step.
TEST(GpuRoute, ATokenIsTheSameInEveryBatch) {
  RandomTensors random(2);
  const RouteArgs all = released_route(random, 1000);
  mirrored::Queue mirror(gpu_queue());
  route(mirror, all);
  int64_t first = 0;
  for (const int64_t count : {1, 2, 8, 9, 40, 200, 520}) {
    RouteArgs part = all;
    part.x = {all.x.row(first), {count, kDim}};
    part.image_index = {all.image_index.row(first), {count}};
    part.ids = random.tensor<int32_t>({count, kChoices});
    part.weights = random.tensor<float>({count, kChoices});
    route(mirror, part);
    EXPECT_TRUE(std::equal(part.ids.data, part.ids.data + count * kChoices, all.ids.row(first)));
    EXPECT_TRUE(std::equal(part.weights.data, part.weights.data + count * kChoices,
                           all.weights.row(first)));
    first += count;
  }
}

}  // namespace
}  // namespace cachalot
