// The pictures of tests/data/images against Pillow's padded pixels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "vision/preprocess.h"
#include "vision/test_files.h"

namespace cachalot {
namespace {

using nlohmann::json;

const std::filesystem::path kFolder = CACHALOT_SOURCE_DIR "/tests/data/images";

// Two JPEG decoders may round differently.
struct Distance {
  int largest = 0;
  double mean = 0;
};

Distance distance(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  Distance result;
  for (size_t i = 0; i < a.size(); ++i) {
    const int difference = std::abs(a[i] - b[i]);
    result.largest = std::max(result.largest, difference);
    result.mean += difference;
  }
  result.mean /= static_cast<double>(a.size());
  return result;
}

TEST(GoldenImages, HaveTheReferencesGridSizeAndPixels) {
  const json index = json::parse(std::ifstream(kFolder / "index.json"));
  ASSERT_EQ(index.size(), 18u);
  for (const json& entry : index) {
    const std::string name = entry["file"];
    SCOPED_TRACE(name + ", tokens " + entry["max_tokens"].dump());
    const ImageBudget budget{.min_pixels = entry["min_pixels"], .max_tokens = entry["max_tokens"]};
    const auto prepared = prepare_image(read_bytes(kFolder / name), budget);
    ASSERT_TRUE(prepared) << prepared.error().message;
    const ImagePlan& plan = prepared->plan;
    EXPECT_EQ(json({plan.grid_height, plan.grid_width}), entry["grid"]);
    EXPECT_EQ(json({plan.height, plan.width}), entry["size"]);
    const std::vector<uint8_t>& pixels = prepared->padded.rgb;
    EXPECT_EQ(std::accumulate(pixels.begin(), pixels.end(), int64_t{0}), entry["sum"]);
    if (!entry.contains("row_sums")) continue;
    const std::vector<uint8_t> expected = read_bytes(kFolder / "expected" / (name + ".rgb"));
    ASSERT_EQ(pixels.size(), expected.size());
    if (name.ends_with(".jpg")) {
      EXPECT_LE(distance(pixels, expected).largest, 2);
      EXPECT_LT(distance(pixels, expected).mean, 0.1);
    } else {
      EXPECT_EQ(pixels, expected);
    }
  }
}

}  // namespace
}  // namespace cachalot
