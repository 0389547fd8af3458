// A picture's file to what the vision tower reads (spec: vision, section 2).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/number_formats.h"
#include "base/result.h"
#include "vision/decode.h"
#include "vision/size_plan.h"

namespace cachalot {

struct PreparedImage {
  ImagePlan plan;
  Image padded;  // plan.width x plan.height
};

// Decodes, plans on the size that the file has, resizes and pads. Errors: those of decode_image and
// plan_image.
Result<PreparedImage> prepare_image(std::span<const uint8_t> file, const ImageBudget& budget = {},
                                    const ImageDecodeOptions& options = {});

// SHA-256 of the size and the pixels: what tells two pictures apart for the model.
std::array<uint8_t, 32> digest_of(const Image& padded);

struct ImagePatches {
  int64_t rows = 0, columns = 0;
  std::vector<bf16> values;  // [rows * columns, 3 * patch * patch], a patch as (channel, y, x)
};

// RNE_BF16((pixel / 255 - 0.5) / 0.5) in FP32. The picture's sides are multiples of `patch`.
ImagePatches patches_of(const Image& padded, int64_t patch = 14);

}  // namespace cachalot
