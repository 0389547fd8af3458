// moe_experts and route on the GPU at the sizes of the released model.
#include "on_gpu.h"
#include "placed_experts.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120, kWidth = 2304;

// A few experts, of the released size if nothing else is said: the reference is slow.
MoeExpertsArgs some_experts(RandomTensors& random, int64_t tokens, int64_t experts, int64_t choices,
                            int64_t dim = kDim, int64_t width = kWidth) {
  return random_experts(random, dim, width, tokens, experts, choices, 0.1f);
}

// The rows of `args` from `first` on.
MoeExpertsArgs rows_of(RandomTensors& random, const MoeExpertsArgs& args, int64_t first,
                       int64_t count) {
  MoeExpertsArgs out = args;
  const int64_t k = args.ids.extent(1), dim = args.x.extent(1);
  out.x = {args.x.row(first), {count, dim}};
  out.ids = {args.ids.row(first), {count, k}};
  out.weights = {args.weights.row(first), {count, k}};
  out.y = random.tensor<bf16>({count, dim});
  return out;
}

void run_on_gpu(const MoeExpertsArgs& args) {
  mirrored::Queue mirror(gpu_queue());
  moe_experts(mirror, args);
}

TEST(GpuExperts, AgreeAtTheReleasedSize) {
  RandomTensors random(1);
  const MoeExpertsArgs args = some_experts(random, 5, 4, 3);
  CACHALOT_EXPECT_GPU_AGREES(moe_experts, args);
}

int64_t differing_values(const MoeExpertsArgs& part, const MoeExpertsArgs& all, int64_t first) {
  int64_t differing = 0;
  for (int64_t i = 0; i < part.y.elements(); ++i)
    differing += part.y.data[i].bits != all.y.row(first)[i].bits;
  return differing;
}

// Every token alone, among a few and among many: the same bits.
TEST(GpuExperts, ATokenIsTheSameInEveryBatch) {
  RandomTensors random(2);
  constexpr int64_t kTokens = 600;
  const MoeExpertsArgs all = some_experts(random, kTokens, 3, 2);
  run_on_gpu(all);
  int64_t first = 0;
  for (const int64_t count : {1, 2, 7, 16, 17, 33, 60, 100, 130, 200}) {
    SCOPED_TRACE(fmt::format("rows {} .. {}", first, first + count));
    const MoeExpertsArgs part = rows_of(random, all, first, count);
    run_on_gpu(part);
    EXPECT_EQ(differing_values(part, all, first), 0);
    first += count;
  }
}

// So many that rows are copied beside the shared expert's products and tiles have up to 160 rows,
// and parts of which neither is so. Their widths differ: some 152 rows an expert, and some 122.
TEST(GpuExperts, ManyTokensAreTheSameInParts) {
  RandomTensors random(4);
  constexpr int64_t kTokens = 1216;
  for (const int64_t experts : {40, 50}) {
    const MoeExpertsArgs all = some_experts(random, kTokens, experts, 5, 1280, 384);
    for (int time = 0; time < 2; ++time) {
      run_on_gpu(all);
      int64_t first = 0;
      for (const int64_t count : {3, 150, 500, 563}) {
        SCOPED_TRACE(fmt::format("rows {} .. {}", first, first + count));
        const MoeExpertsArgs part = rows_of(random, all, first, count);
        run_on_gpu(part);
        EXPECT_EQ(differing_values(part, all, first), 0);
        first += count;
      }
    }
  }
}

// Operations of one token leave something for the next, of the same width or of another: several in
// turn, of other shapes too, and each twice.
TEST(GpuExperts, TokensAloneInTurnAreTheSameAsTogether) {
  RandomTensors random(3);
  constexpr int64_t kTokens = 20;
  struct Shape {
    int64_t experts, choices, dim, width;
  };
  std::vector<MoeExpertsArgs> together;
  for (const Shape& shape :
       {Shape{9, 7, 1024, 512}, Shape{3, 1, 1536, 512}, Shape{4, 2, 512, 1152},
        Shape{8, 6, 2560, 1280}, Shape{8, 7, 5120, 512}, Shape{4, 2, 512, 768}}) {
    together.push_back(
        some_experts(random, kTokens, shape.experts, shape.choices, shape.dim, shape.width));
    run_on_gpu(together.back());
  }
  for (int64_t token = 0; token < kTokens; ++token)
    for (const MoeExpertsArgs& all : together)
      for (int time = 0; time < 2; ++time) {
        const MoeExpertsArgs alone = rows_of(random, all, token, 1);
        run_on_gpu(alone);
        EXPECT_EQ(differing_values(alone, all, token), 0)
            << "token " << token << ", width " << all.shared.w1.rows;
      }
}

}  // namespace
}  // namespace cachalot
