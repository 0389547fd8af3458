// Damaged picture files for tests: a file of tests/data/images with bytes changed, cut out,
// repeated or cut off. The same number gives the same file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "vision/decode.h"
#include "vision/test_files.h"

namespace cachalot {

inline std::vector<std::vector<uint8_t>> image_files() {
  std::vector<std::vector<uint8_t>> files;
  const std::filesystem::path folder = CACHALOT_SOURCE_DIR "/tests/data/images";
  for (const char* subfolder : {".", "formats"}) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder / subfolder)) {
      if (entry.is_regular_file() && entry.path().extension() != ".json") {
        paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) files.push_back(read_bytes(path));
  }
  return files;
}

inline std::vector<uint8_t> mutated(std::vector<uint8_t> file, uint64_t number) {
  std::mt19937_64 random(number);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  const bool gentle = random() % 2 == 0;  // the header stays whole: decoding gets further
  const size_t changes = 1 + below(gentle ? 2 : 8);
  for (size_t i = 0; i < changes && !file.empty(); ++i) {
    size_t at = below(gentle ? file.size() : std::min<size_t>(file.size(), 64));
    if (gentle) at = std::max(at, std::min<size_t>(file.size() - 1, 40));
    const size_t length = std::min(1 + below(16), file.size() - at);
    switch (random() % 8) {
      case 0:
        file[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        file[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        file[at] = 0xFF;
        break;
      case 3:
        file[at] = 0;
        break;
      case 4:
        file.erase(file.begin() + at, file.begin() + at + length);
        break;
      case 5: {
        const std::vector<uint8_t> part(file.begin() + at, file.begin() + at + length);
        file.insert(file.begin() + at, part.begin(), part.end());
        break;
      }
      case 6: {
        for (size_t j = 0; j < length; ++j) file[at + j] = static_cast<uint8_t>(random());
        break;
      }
      default:
        if (i == 0) file.resize(at);
        break;
    }
  }
  return file;
}

// Decodes file number % files and says whether that succeeded; a crash, a leak or an empty error is
// the failure looked for.
inline bool decode_mutated(const std::vector<std::vector<uint8_t>>& files, uint64_t number) {
  const auto image = decode_image(mutated(files[number % files.size()], number));
  if (image) {
    EXPECT_EQ(image->rgb.size(), static_cast<size_t>(image->width * image->height * 3)) << number;
  } else {
    EXPECT_FALSE(image.error().message.empty()) << number;
  }
  return image.has_value();
}

}  // namespace cachalot
