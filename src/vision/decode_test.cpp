#include "vision/decode.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "vision/image_mutations.h"

namespace cachalot {
namespace {

const std::filesystem::path kFolder = CACHALOT_SOURCE_DIR "/tests/data/images";

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string error_of(std::span<const uint8_t> file, const ImageDecodeOptions& options = {}) {
  const auto image = decode_image(file, options);
  return image ? "decoded" : image.error().message;
}

// A PNG's header with another size; its check sum goes with it.
std::vector<uint8_t> png_of_size(uint32_t width, uint32_t height) {
  std::vector<uint8_t> file = read_bytes(kFolder / "rgb_small.png");
  for (int i = 0; i < 4; ++i) {
    file[16 + i] = static_cast<uint8_t>(width >> (24 - 8 * i));
    file[20 + i] = static_cast<uint8_t>(height >> (24 - 8 * i));
  }
  uint32_t sum = ~0u;
  for (int i = 12; i < 29; ++i) {
    sum ^= file[i];
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
  }
  for (int i = 0; i < 4; ++i) file[29 + i] = static_cast<uint8_t>(~sum >> (24 - 8 * i));
  return file;
}

TEST(DecodeImage, NamesWhatItCannotRead) {
  using namespace std::string_view_literals;
  EXPECT_EQ(error_of({}), "the picture's file is empty");
  EXPECT_EQ(error_of(bytes_of("BM\x36\0\0\0"sv)), "expected JPEG, PNG, WebP or GIF, found BMP");
  EXPECT_EQ(error_of(bytes_of("II*\0\x08\0\0\0"sv)), "expected JPEG, PNG, WebP or GIF, found TIFF");
  EXPECT_EQ(error_of(bytes_of("\0\0\0\x1c"
                              "ftypavif"sv)),
            "expected JPEG, PNG, WebP or GIF, found AVIF");
  EXPECT_EQ(error_of(bytes_of("Hello")),
            "expected JPEG, PNG, WebP or GIF, found none of them (the file begins with 48 65 6c 6c "
            "6f)");
}

TEST(DecodeImage, RefusesFilesThatAreCutOff) {
  const std::map<std::string, std::string> files = {{"rgb.jpg", "JPEG"},
                                                    {"formats/progressive.jpg", "JPEG"},
                                                    {"cmyk.jpg", "JPEG"},
                                                    {"rgb_small.png", "PNG"},
                                                    {"palette.png", "PNG"},
                                                    {"formats/interlaced.png", "PNG"},
                                                    {"lossless.webp", "WebP"},
                                                    {"formats/animated.webp", "WebP"},
                                                    {"formats/animated.gif", "GIF"}};
  for (const auto& [name, format] : files) {
    const std::vector<uint8_t> file = read_bytes(kFolder / name);
    EXPECT_TRUE(decode_image(file)) << name << ": " << error_of(file);
    // Of an animation the first frame lies in the first half.
    const size_t part = name == "formats/animated.gif" ? file.size() / 4 : file.size() / 2;
    EXPECT_EQ(error_of(std::span(file).first(part)), format + ": the file is cut off") << name;
    for (size_t size = 12; size < 40; ++size) {
      EXPECT_NE(error_of(std::span(file).first(size)), "decoded") << name;
    }
  }
}

TEST(DecodeImage, RefusesLargePicturesBeforeItDecodesThem) {
  EXPECT_EQ(error_of(png_of_size(50000, 50000)),
            "PNG: 50000 x 50000 pixels are more than the 67108864 allowed; send a smaller picture");
  EXPECT_EQ(error_of(png_of_size(0x7FFFFFFF, 0x7FFFFFFF)),
            "PNG: 2147483647 x 2147483647 pixels are more than the 67108864 allowed; send a "
            "smaller picture");
  EXPECT_EQ(error_of(png_of_size(0, 10)), "PNG: Invalid IHDR data");
  for (const char* name : {"rgb.jpg", "rgb.jpg", "lossless.webp", "formats/animated.gif"}) {
    EXPECT_NE(error_of(read_bytes(kFolder / name), {.max_pixels = 100}).find("the 100 allowed"),
              std::string::npos)
        << name;
  }
  const std::vector<uint8_t> file = read_bytes(kFolder / "rgb.jpg");
  EXPECT_EQ(error_of(file, {.max_bytes = 1000}),
            "the picture's file has 39725 bytes, more than the 1000 allowed");
}

TEST(DecodeImage, SurvivesDamagedFiles) {
  const auto files = image_files();
  ASSERT_GE(files.size(), 12u);
  for (uint64_t number = 0; number < 300; ++number) decode_mutated(files, number);
}

// All eight ways a camera can be held, in both byte orders: turned only if asked for.
TEST(DecodeImage, HonoursTheOrientationOnlyIfAsked) {
  const auto stored = decode_image(read_bytes(kFolder / "formats/orientation-1.jpg"));
  ASSERT_TRUE(stored);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    const auto file = read_bytes(kFolder / fmt::format("formats/orientation-{}.jpg", orientation));
    const auto as_stored = decode_image(file);
    ASSERT_TRUE(as_stored);
    EXPECT_EQ(as_stored->rgb, stored->rgb);
    const auto upright = decode_image(file, {.honour_orientation = true});
    ASSERT_TRUE(upright);
    const auto expected =
        read_bytes(kFolder / fmt::format("formats/expected/orientation-{}.jpg.rgb", orientation));
    ASSERT_EQ(upright->width, orientation < 5 ? 40 : 24);
    ASSERT_EQ(upright->rgb.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(upright->rgb[i], expected[i], 2) << i;
    }
  }
  EXPECT_TRUE(
      decode_image(read_bytes(kFolder / "formats/broken-exif.jpg"), {.honour_orientation = true}));
}

// What Pillow makes of formats that the other pictures do not hold.
TEST(DecodeImage, ConvertsEveryKindOfFileAsTheReference) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / "formats")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.starts_with("orientation") || name == "broken-exif.jpg") {
      continue;
    }
    SCOPED_TRACE(name);
    const auto image = decode_image(read_bytes(entry.path()));
    ASSERT_TRUE(image) << image.error().message;
    const auto expected = read_bytes(kFolder / "formats/expected" / (name + ".rgb"));
    ASSERT_EQ(image->rgb.size(), expected.size());
    const int tolerance = name.ends_with(".jpg") ? 2 : 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(image->rgb[i], expected[i], tolerance) << i;
    }
    ++count;
  }
  EXPECT_GE(count, 20u);
}

}  // namespace
}  // namespace cachalot
