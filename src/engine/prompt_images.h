// Pictures in a prompt: the vision tower's rows in place of token embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/number_formats.h"
#include "engine/engine.h"

namespace cachalot {

struct PromptImages {
  int64_t dim = 0;
  std::vector<bf16> rows;      // [image tokens, dim]
  std::vector<int32_t> index;  // per token of the prompt: its row, -1 for text
  // Per token of the prompt what the prefix cache knows it by (engine/prefix_cache.h).
  std::vector<int64_t> key;
};

// The rows that a step's parts of prompts stand for, in one piece.
class StepImages {
 public:
  // The part begins at token `first` of its prompt; `images` may be absent.
  void add(SequenceStep& part, const PromptImages* images, int64_t first);
  View<const bf16> rows() const;  // absent: no pictures in this step

 private:
  int64_t dim_ = 0;
  std::vector<bf16> rows_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> indices_;  // what parts look at
};

}  // namespace cachalot
