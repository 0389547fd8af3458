// Resizing as the reference does it: Pillow's bicubic filter, pixel for pixel (spec: vision, 2.5).
#pragma once

#include "base/result.h"
#include "vision/image.h"

namespace cachalot {

// Bicubic with a = -0.5, its support widened by the factor of a reduction: a horizontal pass, then
// a vertical one, in 8 bits between them. A side that keeps its size takes no pass.
Image resize_bicubic(const Image& image, int64_t width, int64_t height);

// The largest picture of the same ratio inside width x height, centred on grey (127, 127, 127).
// Errors: the picture is so narrow that a side of it would be 0.
Result<Image> resize_and_pad(const Image& image, int64_t width, int64_t height);

}  // namespace cachalot
