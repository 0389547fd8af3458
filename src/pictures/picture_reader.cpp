#include "pictures/picture_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "vision/data_url.h"

namespace cachalot {
namespace {

Result<std::vector<uint8_t>> read_local_file(std::string path) {
  constexpr std::string_view kScheme = "file://";
  if (path.starts_with(kScheme)) path.erase(0, kScheme.size());
  CACHALOT_TRY(const MappedFile file, MappedFile::open(path));
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.bytes().data());
  return std::vector<uint8_t>(bytes, bytes + file.bytes().size());
}

Result<ImageBudget> budget_of(const ModelConfig& config) {
  if (config.vision_max_wh_ratio) {
    return fail("vision_max_wh_ratio {}: this version knows no limit of a picture's ratio",
                *config.vision_max_wh_ratio);
  }
  return ImageBudget{.patch = config.vision_patch_size,
                     .downsample = config.vision_downsample_ratio,
                     .min_pixels = config.vision_min_pixels,
                     .max_tokens = config.vision_max_n_token};
}

}  // namespace

PictureReader::PictureReader(std::shared_ptr<const Checkpoint> checkpoint,
                             const PictureOptions& options)
    : checkpoint_(std::move(checkpoint)), options_(options) {}

Result<ImagePrompt> PictureReader::expand(std::span<const int32_t> ids,
                                          std::span<const ImageRecord> pictures) {
  std::vector<std::shared_ptr<const EncodedImage>> images;
  for (const ImageRecord& picture : pictures) {
    auto image = encode(picture);
    if (!image) return fail(image.error().in(picture.where));
    images.push_back(std::move(*image));
  }
  const ModelConfig& config = checkpoint_->config();
  if (!config.has_vision()) return expand_images(ids, -1, images);
  return expand_images(ids, static_cast<int32_t>(config.image_token_id), images);
}

Result<int64_t> PictureReader::count(std::span<const int32_t> ids,
                                     std::span<const ImageRecord> pictures) {
  int64_t tokens = std::ssize(ids);
  for (const ImageRecord& picture : pictures) {
    if (const auto able = encoder(); !able) return fail(able.error().in(picture.where));
    const auto prepared = prepare(picture);
    if (!prepared) return fail(prepared.error().in(picture.where));
    tokens += prepared->plan.tokens() - 1;  // the placeholder is among `ids`
  }
  return tokens;
}

Result<PreparedImage> PictureReader::prepare(const ImageRecord& picture) const {
  CACHALOT_TRY(const ImageBudget budget, budget_of(checkpoint_->config()));
  CACHALOT_TRY(const std::vector<uint8_t> file, read(picture.location));
  return prepare_image(file, budget, options_.decode);
}

Result<std::shared_ptr<const EncodedImage>> PictureReader::encode(const ImageRecord& picture) {
  CACHALOT_TRY(ImageEncoder* const encoder, this->encoder());
  CACHALOT_TRY(const PreparedImage prepared, prepare(picture));
  const ImagePatches patches = patches_of(prepared.padded, checkpoint_->config().vision_patch_size);
  return encoder->encode({patches.rows, patches.columns}, patches.values,
                         digest_of(prepared.padded));
}

Result<std::vector<uint8_t>> PictureReader::read(const std::string& location) const {
  if (is_data_url(location)) return decode_data_url(location, options_.decode.max_bytes);
  const bool remote = location.starts_with("http://") || location.starts_with("https://");
  if (options_.local_files && !remote) return read_local_file(location);
  return fail("expected a data: URL{}, found \"{}\"",
              options_.local_files ? " or a local file" : "", location.substr(0, 80));
}

Result<ImageEncoder*> PictureReader::encoder() {
  const std::lock_guard lock(mutex_);
  if (encoder_ == nullptr) {
    CACHALOT_TRY(encoder_, ImageEncoder::make(checkpoint_, options_.encoder));
  }
  return encoder_.get();
}

}  // namespace cachalot
