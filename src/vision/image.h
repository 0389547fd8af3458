// A decoded picture: 8-bit RGB, rows from the top, without padding between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cachalot {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  Image() = default;
  Image(int64_t columns, int64_t rows)
      : width(columns), height(rows), rgb(static_cast<size_t>(columns * rows * 3)) {}

  uint8_t* row(int64_t y) { return rgb.data() + y * width * 3; }
  const uint8_t* row(int64_t y) const { return rgb.data() + y * width * 3; }
};

}  // namespace cachalot
