// The vision tower's and the aligner's tensors under the names the model code uses (spec: vision,
// 4).
#pragma once

#include <iterator>
#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tensor/matrix.h"
#include "tensor/memory.h"

namespace cachalot {

// A linear layer with a bias.
struct BiasedMatrix {
  DenseMatrix weight;     // [out, in] BF16
  View<const bf16> bias;  // [out]
};

struct VisionBlockWeights {
  View<const bf16> attention_norm;  // norm1 [vision_dim]
  BiasedMatrix wqkv;                // [3 * vision_dim, vision_dim]
  BiasedMatrix wo;                  // [vision_dim, vision_dim]
  View<const bf16> mlp_norm;        // norm2 [vision_dim]
  DenseMatrix w1;                   // [2 * vision_inter_dim, vision_dim] gate, then up
  DenseMatrix w2;                   // [vision_dim, vision_inter_dim]
};

class VisionWeights {
 public:
  // The checkpoint, validated, must outlive the result. Errors: the model has no vision tower, or a
  // width the matrix kernels cannot take (no multiple of 32).
  static Result<VisionWeights> bind(const Checkpoint& checkpoint);
  // Moves what the tower reads, all but the marks, to other memory. Errors: there is no room.
  Status place_in(const MemorySpace& memory);

  BiasedMatrix patch_embed;  // [vision_dim, patch_width]: a copy, zeros behind the patch's values
  int64_t patch_width = 0;   // 3 * patch^2, up to the next multiple of 32
  std::vector<VisionBlockWeights> blocks;
  View<const bf16> norm;                 // [vision_dim]
  BiasedMatrix aligner_w1;               // [dim, vision_dim * ratio^2]
  BiasedMatrix aligner_w2;               // [dim, dim]
  View<const bf16> start, newline, end;  // [dim] the marks of a span
  std::vector<float> frequencies;        // [head_dim / 4] angle per patch
  // Where the tower reads them.
  View<const float> placed_frequencies() const {
    return {placed_frequencies_ ? placed_frequencies_ : frequencies.data(),
            {std::ssize(frequencies)}};
  }

 private:
  std::vector<bf16> patch_values_;
  const float* placed_frequencies_ = nullptr;
  std::vector<std::unique_ptr<void, ReleaseTo>> placed_;
};

}  // namespace cachalot
