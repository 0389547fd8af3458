// Bytes of a JPEG, PNG, WebP or GIF file to RGB pixels, as the reference's loader makes them
// (Pillow's `Image.open(...).convert("RGB")`; spec: vision, section 2):
//
//   * the format is told by the content, never by a name or a MIME type;
//   * alpha is dropped, not blended; of an animation, the first frame counts;
//   * 16-bit channels keep their upper byte, but 16-bit grey is cut off at 255 (so Pillow does it);
//   * CMYK is read as inverted (Adobe's way) and becomes (255 - c)(255 - k) / 255;
//   * colour profiles and gamma are ignored, and so is EXIF orientation unless it is asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "vision/image.h"

namespace cachalot {

enum class ImageFormat { jpeg, png, webp, gif };

std::string_view name_of(ImageFormat format);

struct ImageDecodeOptions {
  int64_t max_bytes = int64_t{64} << 20;   // of the file
  int64_t max_pixels = int64_t{64} << 20;  // of the picture, known from its header
  bool honour_orientation = false;         // turn the picture as its EXIF block says
};

// Errors: none of the four formats (names a format that is known but not supported).
Result<ImageFormat> image_format_of(std::span<const uint8_t> file);

// Both limits are checked before any pixel is decoded; at most 8 bytes per pixel are held at a
// time. Errors: the file is empty, too large, cut off or damaged, or not of a supported format.
Result<Image> decode_image(std::span<const uint8_t> file, const ImageDecodeOptions& options = {});

}  // namespace cachalot
