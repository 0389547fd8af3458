// How large a picture is shown to the model, and how many tokens it takes (spec: vision, section
// 2).
#pragma once

#include <cstdint>

#include "base/result.h"

namespace cachalot {

// What a budget may limit a picture's tokens to: one cell, its newline and the delimiters; a span
// that a step's indices reach.
inline constexpr int64_t kSmallestTokens = 4, kLargestTokens = 1 << 20;

// The released model's values.
struct ImageBudget {
  int64_t patch = 14;           // pixels of a patch's side
  int64_t downsample = 3;       // patches of a token's side
  int64_t min_pixels = 295936;  // smaller pictures are enlarged to about this many
  int64_t max_tokens = 1024;    // of the whole span, delimiters included
};

struct ImagePlan {
  int64_t width = 0, height = 0;            // pixels after padding, multiples of a patch
  int64_t grid_width = 0, grid_height = 0;  // tokens

  // Start, each row of the grid with its newline, end.
  int64_t tokens() const { return grid_height * (grid_width + 1) + 2; }
};

// `width` and `height` are the file's, in pixels. Errors: a budget that holds no picture, or a
// picture so narrow that nothing of it is left.
Result<ImagePlan> plan_image(int64_t width, int64_t height, const ImageBudget& budget = {});

}  // namespace cachalot
