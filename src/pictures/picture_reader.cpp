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

bool is_remote(const std::string& location) {
  std::string beginning = location.substr(0, 8);
  for (char& c : beginning)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  return beginning.starts_with("http://") || beginning == "https://";
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

// A file's own name is its place too where the command line names it.
Error at_place(const Error& error, const ImageRecord& picture) {
  return error.message.starts_with(picture.where + ": ") ? error : error.in(picture.where);
}

}  // namespace

PictureReader::PictureReader(std::shared_ptr<const Checkpoint> checkpoint,
                             const PictureOptions& options)
    : checkpoint_(std::move(checkpoint)), options_(options) {}

Result<ImagePrompt> PictureReader::expand(std::span<const int32_t> ids,
                                          std::span<const ImageRecord> pictures,
                                          const Abandoned& abandoned) {
  CACHALOT_TRY(const Fetched fetched, fetch(pictures, abandoned));
  std::vector<std::shared_ptr<const EncodedImage>> images;
  for (const ImageRecord& picture : pictures) {
    auto image = encode(picture, fetched);
    if (!image) return fail(at_place(image.error(), picture));
    images.push_back(std::move(*image));
  }
  const ModelConfig& config = checkpoint_->config();
  if (!config.has_vision()) return expand_images(ids, -1, images);
  return expand_images(ids, static_cast<int32_t>(config.image_token_id), images);
}

Result<int64_t> PictureReader::count(std::span<const int32_t> ids,
                                     std::span<const ImageRecord> pictures,
                                     const Abandoned& abandoned) {
  CACHALOT_TRY(const Fetched fetched, fetch(pictures, abandoned));
  int64_t tokens = std::ssize(ids);
  for (const ImageRecord& picture : pictures) {
    const auto prepared = prepare(picture, fetched);
    if (!prepared) return fail(at_place(prepared.error(), picture));
    tokens += prepared->plan.tokens() - 1;  // the placeholder is among `ids`
  }
  return tokens;
}

// What is elsewhere, all at once and every place once.
Result<PictureReader::Fetched> PictureReader::fetch(std::span<const ImageRecord> pictures,
                                                    const Abandoned& abandoned) {
  if (pictures.empty()) return Fetched();
  // Nothing is fetched for a model that could not look at it.
  if (const auto able = encoder(); !able) return fail(able.error().in(pictures.front().where));
  Fetched fetched;
  std::vector<std::string> urls;
  std::vector<std::string> places;
  for (const ImageRecord& picture : pictures) {
    if (!is_fetched(picture.location)) continue;
    if (!fetched.emplace(picture.location, std::vector<uint8_t>()).second) continue;
    urls.push_back(picture.location);
    places.push_back(picture.where);
  }
  if (urls.empty()) return fetched;
  auto bodies = options_.fetcher->fetch(urls, abandoned);
  if (!bodies) return fail(bodies.error().error.in(places[bodies.error().url]));
  for (size_t i = 0; i < urls.size(); ++i) fetched[urls[i]] = std::move((*bodies)[i]);
  return fetched;
}

Result<PreparedImage> PictureReader::prepare(const ImageRecord& picture,
                                             const Fetched& fetched) const {
  CACHALOT_TRY(const ImageBudget budget, budget_of(checkpoint_->config()));
  const auto remote = fetched.find(picture.location);
  if (remote != fetched.end()) return prepare_image(remote->second, budget, options_.decode);
  CACHALOT_TRY(const std::vector<uint8_t> file, read(picture.location));
  return prepare_image(file, budget, options_.decode);
}

Result<std::shared_ptr<const EncodedImage>> PictureReader::encode(const ImageRecord& picture,
                                                                  const Fetched& fetched) {
  CACHALOT_TRY(ImageEncoder* const encoder, this->encoder());
  CACHALOT_TRY(const PreparedImage prepared, prepare(picture, fetched));
  const ImagePatches patches = patches_of(prepared.padded, checkpoint_->config().vision_patch_size);
  return encoder->encode({patches.rows, patches.columns}, patches.values,
                         digest_of(prepared.padded));
}

bool PictureReader::is_fetched(const std::string& location) const {
  return options_.fetcher != nullptr && is_remote(location);
}

Result<std::vector<uint8_t>> PictureReader::read(const std::string& location) const {
  if (is_data_url(location)) return decode_data_url(location, options_.decode.max_bytes);
  if (options_.local_files && !is_remote(location)) return read_local_file(location);
  return fail("expected a data: URL{}{}, found \"{}\"",
              options_.fetcher ? ", http:// or https://" : "",
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
