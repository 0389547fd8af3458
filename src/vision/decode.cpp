#include "vision/decode.h"

#include <algorithm>
#include <utility>

#include "vision/decoders.h"
#include "vision/orientation.h"

namespace cachalot {
namespace {

using namespace std::string_view_literals;

bool begins_with(std::span<const uint8_t> file, std::string_view bytes, size_t at = 0) {
  return file.size() >= at + bytes.size() &&
         std::equal(bytes.begin(), bytes.end(), file.begin() + at,
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

// What people send that is a picture, but not one the model's loader takes here.
std::string_view unsupported_format(std::span<const uint8_t> file) {
  if (begins_with(file, "BM")) return "BMP";
  if (begins_with(file, "II*\0"sv) || begins_with(file, "MM\0*"sv)) return "TIFF";
  if (begins_with(file, "ftypavif", 4) || begins_with(file, "ftypavis", 4)) return "AVIF";
  if (begins_with(file, "ftyphei", 4) || begins_with(file, "ftypmif1", 4)) return "HEIC";
  if (begins_with(file, "\0\0\0\x0cJXL "sv) || begins_with(file, "\xff\x0a")) return "JPEG XL";
  if (begins_with(file, "\0\0\0\x0cjP  "sv)) return "JPEG 2000";
  if (begins_with(file, "<svg") || begins_with(file, "<?xml")) return "SVG or XML";
  if (begins_with(file, "%PDF")) return "PDF";
  return "";
}

Result<DecodedFile> decode_as(ImageFormat format, std::span<const uint8_t> file,
                              int64_t max_pixels) {
  switch (format) {
    case ImageFormat::jpeg:
      return decode_jpeg(file, max_pixels);
    case ImageFormat::png:
      return decode_png(file, max_pixels);
    case ImageFormat::webp:
      return decode_webp(file, max_pixels);
    case ImageFormat::gif:
      break;
  }
  return decode_gif(file, max_pixels);
}

}  // namespace

std::string_view name_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::jpeg:
      return "JPEG";
    case ImageFormat::png:
      return "PNG";
    case ImageFormat::webp:
      return "WebP";
    case ImageFormat::gif:
      break;
  }
  return "GIF";
}

Status check_picture_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width <= 0 || height <= 0) return fail("a picture of {} x {} pixels is empty", width, height);
  if (height > max_pixels / width) {
    return fail("{} x {} pixels are more than the {} allowed; send a smaller picture", width,
                height, max_pixels);
  }
  return {};
}

Result<ImageFormat> image_format_of(std::span<const uint8_t> file) {
  if (file.empty()) return fail("the picture's file is empty");
  if (begins_with(file, "\xff\xd8\xff")) return ImageFormat::jpeg;
  if (begins_with(file, "\x89PNG\r\n\x1a\n")) return ImageFormat::png;
  if (begins_with(file, "RIFF") && begins_with(file, "WEBP", 8)) return ImageFormat::webp;
  if (begins_with(file, "GIF87a") || begins_with(file, "GIF89a")) return ImageFormat::gif;
  const std::string_view other = unsupported_format(file);
  if (!other.empty()) return fail("expected JPEG, PNG, WebP or GIF, found {}", other);
  return fail("expected JPEG, PNG, WebP or GIF, found none of them (the file begins with {:02x})",
              fmt::join(file.first(std::min<size_t>(file.size(), 8)), " "));
}

Result<Image> decode_image(std::span<const uint8_t> file, const ImageDecodeOptions& options) {
  if (static_cast<int64_t>(file.size()) > options.max_bytes) {
    return fail("the picture's file has {} bytes, more than the {} allowed", file.size(),
                options.max_bytes);
  }
  CACHALOT_TRY(const ImageFormat format, image_format_of(file));
  auto decoded = decode_as(format, file, options.max_pixels);
  if (!decoded) return fail(decoded.error().in(name_of(format)));
  if (!options.honour_orientation) return std::move(decoded->image);
  return turned_upright(std::move(decoded->image), exif_orientation(decoded->exif));
}

}  // namespace cachalot
