#include "engine/prompt_images.h"

#include <algorithm>

namespace cachalot {

void StepImages::add(SequenceStep& part, const PromptImages* images, int64_t first) {
  if (images == nullptr || first >= std::ssize(images->index)) return;
  const auto count = std::min(std::ssize(part.tokens), std::ssize(images->index) - first);
  const auto wanted =
      std::span(images->index).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  if (std::ranges::all_of(wanted, [](int32_t row) { return row < 0; })) return;
  // Tokens behind the prompt are text.
  auto index = std::make_unique<std::vector<int32_t>>(part.tokens.size(), -1);
  dim_ = images->dim;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0) continue;
    (*index)[i] = static_cast<int32_t>(std::ssize(rows_) / dim_);
    const auto row = images->rows.begin() + wanted[i] * dim_;
    rows_.insert(rows_.end(), row, row + dim_);
  }
  part.image_index = *index;
  indices_.push_back(std::move(index));
}

View<const bf16> StepImages::rows() const {
  if (rows_.empty()) return {};
  return {rows_.data(), {std::ssize(rows_) / dim_, dim_}};
}

}  // namespace cachalot
