// A prompt with pictures: one placeholder per picture becomes the picture's whole span.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/image_encoder.h"
#include "engine/prompt_images.h"

namespace cachalot {

struct ImagePrompt {
  std::vector<int32_t> ids;                         // spans expanded
  std::shared_ptr<const PromptImages> images = {};  // absent: no pictures
};

// `images` in the order of the placeholders (image_token_id) in `ids`. Every position of a span
// keeps that id. Errors: placeholders and pictures differ in number.
Result<ImagePrompt> expand_images(std::span<const int32_t> ids, int32_t image_token_id,
                                  std::span<const std::shared_ptr<const EncodedImage>> images);

}  // namespace cachalot
