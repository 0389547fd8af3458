#include "engine/prompt_images.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cachalot {
namespace {

PromptImages three_rows() {
  PromptImages images;
  images.dim = 2;
  for (const float value : {0.F, 1.F, 2.F, 3.F, 4.F, 5.F}) images.rows.push_back(to_bf16(value));
  images.index = {-1, 0, 1, -1, 2};
  return images;
}

std::vector<int32_t> index_of(const SequenceStep& part) {
  return {part.image_index.begin(), part.image_index.end()};
}

TEST(StepImages, GathersTheRowsOfAllPartsInOnePiece) {
  const PromptImages images = three_rows();
  const std::vector<int32_t> tokens = {1, 2, 3};
  SequenceStep first{.sequence = 0, .tokens = tokens};
  SequenceStep text{.sequence = 1, .tokens = tokens};
  SequenceStep second{.sequence = 2, .tokens = tokens};
  StepImages step;
  step.add(first, &images, 2);  // tokens 2 to 4: row 1, text, row 2
  step.add(text, nullptr, 0);
  step.add(second, &images, 4);  // token 4, then what was written behind the prompt
  EXPECT_EQ(index_of(first), (std::vector<int32_t>{0, -1, 1}));
  EXPECT_TRUE(text.image_index.empty());
  EXPECT_EQ(index_of(second), (std::vector<int32_t>{2, -1, -1}));
  const View<const bf16> rows = step.rows();
  ASSERT_EQ(rows.extent(0), 3);
  EXPECT_EQ(to_float(rows.row(0)[0]), 2.F);
  EXPECT_EQ(to_float(rows.row(1)[1]), 5.F);
  EXPECT_EQ(to_float(rows.row(2)[0]), 4.F);
}

TEST(StepImages, HasNoRowsWhereThereIsOnlyText) {
  const PromptImages images = three_rows();
  const std::vector<int32_t> tokens = {1};
  SequenceStep part{.sequence = 0, .tokens = tokens};
  StepImages step;
  step.add(part, &images, 3);
  step.add(part, &images, 9);
  EXPECT_TRUE(part.image_index.empty());
  EXPECT_TRUE(step.rows().absent());
}

}  // namespace
}  // namespace cachalot
