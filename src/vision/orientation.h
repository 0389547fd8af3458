// EXIF orientation: how a camera was held. The reference ignores it; ImageDecodeOptions can ask for
// it.
#pragma once

#include <cstdint>
#include <span>

#include "vision/image.h"

namespace cachalot {

// Tag 0x0112 of the first directory of a TIFF structure: 1..8, and 1 (as stored) if there is none,
// or if the block is damaged.
int exif_orientation(std::span<const uint8_t> tiff);

// The picture as it should be seen: 2 mirrors, 3 turns by 180 degrees, 4 flips, 5 transposes, 6
// turns right, 7 transposes across, 8 turns left.
Image turned_upright(Image image, int orientation);

}  // namespace cachalot
