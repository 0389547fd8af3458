#include "ops/run_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace cachalot {
namespace {

constexpr int64_t kDim = 64, kWidth = 32;

// Eight experts, matrices without data: a cost needs their shapes alone.
std::vector<ExpertMatrices> experts() {
  const auto matrix = [](int64_t rows, int64_t columns) {
    return Fp4Matrix{
        rows, columns, {nullptr, {rows, columns / 2}}, {nullptr, {rows, columns / 32}}};
  };
  return std::vector<ExpertMatrices>(
      8, {matrix(kWidth, kDim), matrix(kDim, kWidth), matrix(kWidth, kDim)});
}

MoeExpertsArgs moe_arguments(const std::vector<int32_t>& ids,
                             const std::vector<ExpertMatrices>& all) {
  const int64_t tokens = std::ssize(ids) / 2;
  return {.x = {nullptr, {tokens, kDim}},
          .ids = {ids.data(), {tokens, 2}},
          .weights = {nullptr, {tokens, 2}},
          .experts = all,
          .y = {nullptr, {tokens, kDim}}};
}

TEST(RunCost, CountsAnExpertOnceHoweverManyTokensUseIt) {
  const auto all = experts();
  const int64_t bytes = all[0].w1.bytes() + all[0].w2.bytes() + all[0].w3.bytes();
  const std::vector<int32_t> apart{0, 1, 2, 3, 4, 5}, together{6, 7, 7, 6, 6, 7};
  const MoeExpertsArgs most = moe_arguments(apart, all);
  EXPECT_EQ(run_cost_of(most), cost_of(most));
  const Cost cost = run_cost_of(moe_arguments(together, all));
  EXPECT_EQ(cost.bytes_read, cost_of(most).bytes_read - 4 * bytes);
  EXPECT_EQ(cost.flops, cost_of(most).flops);
}

// Rows of one sequence from `start` on.
struct Positions {
  Positions(int32_t start, int32_t count) {
    for (int32_t i = 0; i < count; ++i) positions.push_back(start + i);
    slots.assign(positions.size(), 0);
    first_rows.assign(positions.size(), 0);
  }
  StepRows rows() const {
    const Shape shape{std::ssize(positions)};
    return {{positions.data(), shape}, {slots.data(), shape}, {first_rows.data(), shape}};
  }
  std::vector<int32_t> positions, slots, first_rows;
};

TEST(RunCost, CountsTheKeysASequenceHasNotThoseItMayHaveOneDay) {
  const Positions step(99, 2);  // sees 50 entries of ratio 2
  const int64_t heads = 4, width = 32, row_bytes = index_key_row_bytes(width);
  const IndexSelectArgs args{.rows = step.rows(),
                             .ratio = 2,
                             .q = {nullptr, {2, heads, width}},
                             .weights = {nullptr, {2, heads}},
                             .frequencies = {nullptr, {8}},
                             .keys = {{nullptr, {40, 128, row_bytes}}, {nullptr, {1, 40}}},
                             .chosen = {nullptr, {2, 16}}};
  const Cost most = cost_of(args), cost = run_cost_of(args);
  EXPECT_EQ(most.bytes_read - cost.bytes_read, (40 * 128 - 50) * row_bytes);
  EXPECT_EQ(most.flops - cost.flops, 2 * (40 * 128 - 50) * heads * (2 * width + 3));
}

TEST(RunCost, CountsTheWindowThatIsThereAndTheEntriesThatWereChosen) {
  const int64_t head_dim = 64, window = 16, top_k = 4;
  const auto cost_at = [&](int32_t position, std::vector<int32_t> chosen) {
    const Positions step(position, 1);
    return run_cost_of(SparseAttentionArgs{
        .rows = step.rows(),
        .q = {nullptr, {1, 2, head_dim}},
        .ring = {nullptr, {1, 24, window_row_bytes(head_dim)}},
        .window = window,
        .chosen = {chosen.data(), {1, top_k}},
        .latents = {{nullptr, {1, 256, latent_row_bytes(head_dim)}}, {nullptr, {1, 1}}},
        .frequencies = {nullptr, {8}},
        .o = {nullptr, {1, 2, head_dim}}});
  };
  const Cost first = cost_at(0, {-1, -1, -1, -1}), more = cost_at(9, {0, 3, -1, -1});
  EXPECT_EQ(more.bytes_read - first.bytes_read,
            9 * window_row_bytes(head_dim) + 2 * latent_row_bytes(head_dim));
  EXPECT_EQ(more.flops - first.flops, 2 * 11 * (4 * head_dim + 3));
  const Cost full = cost_at(500, {0, 3, 5, 7});
  EXPECT_EQ(full.bytes_read - first.bytes_read,
            15 * window_row_bytes(head_dim) + 4 * latent_row_bytes(head_dim));
}

}  // namespace
}  // namespace cachalot
