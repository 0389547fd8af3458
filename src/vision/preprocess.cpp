#include "vision/preprocess.h"

#include <sha2.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "vision/resize.h"

namespace cachalot {
namespace {

std::array<bf16, 256> normalised_values() {
  std::array<bf16, 256> values;
  for (int i = 0; i < 256; ++i) {
    values[i] = to_bf16((static_cast<float>(i) / 255.0f - 0.5f) / 0.5f);
  }
  return values;
}

}  // namespace

Result<PreparedImage> prepare_image(std::span<const uint8_t> file, const ImageBudget& budget,
                                    const ImageDecodeOptions& options) {
  CACHALOT_TRY(const Image image, decode_image(file, options));
  CACHALOT_TRY(const ImagePlan plan, plan_image(image.width, image.height, budget));
  CACHALOT_TRY(Image padded, resize_and_pad(image, plan.width, plan.height));
  return PreparedImage{plan, std::move(padded)};
}

std::array<uint8_t, 32> digest_of(const Image& padded) {
  const std::array<int64_t, 2> size = {padded.width, padded.height};
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, reinterpret_cast<const uint8_t*>(size.data()), sizeof(size));
  SHA256Update(&context, padded.rgb.data(), padded.rgb.size());
  std::array<uint8_t, 32> digest;
  SHA256Final(digest.data(), &context);
  return digest;
}

ImagePatches patches_of(const Image& padded, int64_t patch) {
  CACHALOT_CHECK(patch > 0 && padded.width % patch == 0 && padded.height % patch == 0);
  static const std::array<bf16, 256> kNormalised = normalised_values();
  ImagePatches patches{padded.height / patch, padded.width / patch, {}};
  patches.values.resize(padded.rgb.size());
  bf16* out = patches.values.data();
  for (int64_t row = 0; row < patches.rows; ++row) {
    for (int64_t column = 0; column < patches.columns; ++column) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t y = 0; y < patch; ++y) {
          const uint8_t* in = padded.row(row * patch + y) + column * patch * 3 + channel;
          for (int64_t x = 0; x < patch; ++x) *out++ = kNormalised[in[x * 3]];
        }
      }
    }
  }
  return patches;
}

}  // namespace cachalot
