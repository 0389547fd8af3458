#include "vision/orientation.h"

#include <cstring>
#include <utility>

namespace cachalot {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

// Unsigned integers of a TIFF structure, in its byte order; 0 beyond its end.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes) : bytes_(bytes) {
    little_ = bytes.size() >= 2 && bytes[0] == 'I' && bytes[1] == 'I';
    valid_ = little_ || (bytes.size() >= 2 && bytes[0] == 'M' && bytes[1] == 'M');
    valid_ = valid_ && number(2, 2) == 42;
  }
  bool valid() const { return valid_; }
  uint32_t number(size_t at, size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value = value << 8 | bytes_[at + (little_ ? size - 1 - i : i)];
    }
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool little_ = false, valid_ = false;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  const TiffReader reader(tiff);
  if (!reader.valid()) return 1;
  const size_t directory = reader.number(4, 4);
  const size_t entries = reader.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (reader.number(entry, 2) != kOrientationTag) continue;
    if (reader.number(entry + 2, 2) != kShortType) return 1;
    const uint32_t value = reader.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image turned_upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  Image upright(transposed ? image.height : image.width, transposed ? image.width : image.height);
  // Where a pixel of the upright picture comes from: mirrored along x or y of the stored one.
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < upright.height; ++y) {
    uint8_t* out = upright.row(y);
    for (int64_t x = 0; x < upright.width; ++x, out += 3) {
      int64_t from_x = transposed ? y : x, from_y = transposed ? x : y;
      if (mirror_x) from_x = image.width - 1 - from_x;
      if (mirror_y) from_y = image.height - 1 - from_y;
      std::memcpy(out, image.row(from_y) + from_x * 3, 3);
    }
  }
  return upright;
}

}  // namespace cachalot
