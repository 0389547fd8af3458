// One decoder per format, each the only file that includes its library's header.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "vision/image.h"

namespace cachalot {

struct DecodedFile {
  Image image;
  std::vector<uint8_t> exif;  // the TIFF structure, without "Exif\0\0"; empty if there is none
};

Result<DecodedFile> decode_jpeg(std::span<const uint8_t> file, int64_t max_pixels);
Result<DecodedFile> decode_png(std::span<const uint8_t> file, int64_t max_pixels);
Result<DecodedFile> decode_webp(std::span<const uint8_t> file, int64_t max_pixels);
Result<DecodedFile> decode_gif(std::span<const uint8_t> file, int64_t max_pixels);

// Errors: a side is 0, or width * height is above `max_pixels`.
Status check_picture_size(int64_t width, int64_t height, int64_t max_pixels);

}  // namespace cachalot
