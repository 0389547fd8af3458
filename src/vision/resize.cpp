#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace cachalot {
namespace {

constexpr int kFractionBits = 22;
constexpr double kSupport = 2.0;
constexpr uint8_t kPaddingGrey = 127;

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// Of one pass: which input pixels an output pixel is a sum of, and their weights in fixed point.
struct Taps {
  int64_t width = 0;  // of a row of `weights`
  std::vector<int32_t> first, count;
  std::vector<int32_t> weights;  // [outputs, width]
};

// The order of the operations below is Pillow's: another one rounds some weights differently.
Taps taps_of(int64_t in_size, int64_t out_size) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double filter_scale = std::max(scale, 1.0);
  const double support = kSupport * filter_scale;
  Taps taps;
  taps.width = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.first.resize(out_size);
  taps.count.resize(out_size);
  taps.weights.resize(out_size * taps.width);
  std::vector<double> row(taps.width);
  for (int64_t out = 0; out < out_size; ++out) {
    const double center = (static_cast<double>(out) + 0.5) * scale;
    const double step = 1.0 / filter_scale;
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in_size);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      row[i - begin] = bicubic((static_cast<double>(i) - center + 0.5) * step);
      sum += row[i - begin];
    }
    int32_t* weights = taps.weights.data() + out * taps.width;
    for (int64_t i = 0; i < end - begin; ++i) {
      const double weight = sum != 0.0 ? row[i] / sum : row[i];
      weights[i] = static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kFractionBits));
    }
    taps.first[out] = static_cast<int32_t>(begin);
    taps.count[out] = static_cast<int32_t>(end - begin);
  }
  return taps;
}

uint8_t to_pixel(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

Image resize_rows(const Image& image, int64_t width) {
  const Taps taps = taps_of(image.width, width);
  Image out(width, image.height);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* in_row = image.row(y);
    uint8_t* pixel = out.row(y);
    for (int64_t x = 0; x < width; ++x, pixel += 3) {
      const int32_t* weights = taps.weights.data() + x * taps.width;
      const uint8_t* in = in_row + int64_t{taps.first[x]} * 3;
      int32_t red = 1 << (kFractionBits - 1), green = red, blue = red;
      for (int32_t i = 0; i < taps.count[x]; ++i, in += 3) {
        red += in[0] * weights[i];
        green += in[1] * weights[i];
        blue += in[2] * weights[i];
      }
      pixel[0] = to_pixel(red);
      pixel[1] = to_pixel(green);
      pixel[2] = to_pixel(blue);
    }
  }
  return out;
}

Image resize_columns(const Image& image, int64_t height) {
  const Taps taps = taps_of(image.height, height);
  Image out(image.width, height);
  const int64_t values = image.width * 3;
  std::vector<int32_t> sums(values);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (kFractionBits - 1));
    const int32_t* weights = taps.weights.data() + y * taps.width;
    for (int32_t i = 0; i < taps.count[y]; ++i) {
      const uint8_t* in = image.row(taps.first[y] + i);
      const int32_t weight = weights[i];
      for (int64_t v = 0; v < values; ++v) sums[v] += in[v] * weight;
    }
    uint8_t* row = out.row(y);
    for (int64_t v = 0; v < values; ++v) row[v] = to_pixel(sums[v]);
  }
  return out;
}

// Half to even, as Python's round.
int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

}  // namespace

Image resize_bicubic(const Image& image, int64_t width, int64_t height) {
  if (image.width == width && image.height == height) return image;
  if (image.width == width) return resize_columns(image, height);
  if (image.height == height) return resize_rows(image, width);
  return resize_columns(resize_rows(image, width), height);
}

Result<Image> resize_and_pad(const Image& image, int64_t width, int64_t height) {
  const auto w = static_cast<double>(image.width), h = static_cast<double>(image.height);
  const double ratio = w / h, wanted = static_cast<double>(width) / static_cast<double>(height);
  int64_t inner_width = width, inner_height = height;
  if (ratio > wanted) inner_height = rounded(h / w * static_cast<double>(width));
  if (ratio < wanted) inner_width = rounded(w / h * static_cast<double>(height));
  if (inner_width <= 0 || inner_height <= 0) {
    return fail("a picture of {} x {} pixels is too narrow: nothing of it is left in {} x {}",
                image.width, image.height, width, height);
  }
  Image inner = resize_bicubic(image, inner_width, inner_height);
  if (inner_width == width && inner_height == height) return inner;
  Image padded(width, height);
  std::fill(padded.rgb.begin(), padded.rgb.end(), kPaddingGrey);
  // One of the sides is full: no space there.
  const int64_t left =
      inner_width == width ? 0 : rounded(static_cast<double>(width - inner_width) * 0.5);
  const int64_t top =
      inner_width != width ? 0 : rounded(static_cast<double>(height - inner_height) * 0.5);
  for (int64_t y = 0; y < inner_height; ++y) {
    std::memcpy(padded.row(top + y) + left * 3, inner.row(y), static_cast<size_t>(inner_width) * 3);
  }
  return padded;
}

}  // namespace cachalot
