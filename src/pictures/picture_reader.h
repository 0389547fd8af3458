// Pictures of a conversation to what the engine takes: file, pixels, vision tower, spans in the
// prompt.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.h"
#include "chat/messages.h"
#include "checkpoint/checkpoint.h"
#include "engine/image_prompt.h"
#include "fetch/fetcher.h"
#include "vision/preprocess.h"

namespace cachalot {

struct PictureOptions {
  ImageEncoderOptions encoder;
  ImageDecodeOptions decode;
  bool local_files = false;                // locations that are paths, or file:// URLs, are read
  std::shared_ptr<const Fetcher> fetcher;  // of http and https URLs; nullptr: they are refused
};

// Thread-safe.
class PictureReader {
 public:
  PictureReader(std::shared_ptr<const Checkpoint> checkpoint, const PictureOptions& options);

  // `ids` has one placeholder per picture. Errors name the picture's place in the request: it
  // cannot be fetched, read or decoded, its location is of a kind that is not allowed, the model
  // has no vision tower. `abandoned` ends what is being fetched.
  Result<ImagePrompt> expand(std::span<const int32_t> ids, std::span<const ImageRecord> pictures,
                             const Abandoned& abandoned = {});
  // How many tokens that gives, without encoding anything. Errors: the same.
  Result<int64_t> count(std::span<const int32_t> ids, std::span<const ImageRecord> pictures,
                        const Abandoned& abandoned = {});

 private:
  using Fetched = std::map<std::string, std::vector<uint8_t>>;  // by location

  Result<Fetched> fetch(std::span<const ImageRecord> pictures, const Abandoned& abandoned);
  Result<std::shared_ptr<const EncodedImage>> encode(const ImageRecord& picture,
                                                     const Fetched& fetched);
  Result<PreparedImage> prepare(const ImageRecord& picture, const Fetched& fetched) const;
  Result<std::vector<uint8_t>> read(const std::string& location) const;
  bool is_fetched(const std::string& location) const;
  Result<ImageEncoder*> encoder();

  std::shared_ptr<const Checkpoint> checkpoint_;
  PictureOptions options_;
  std::mutex mutex_;
  std::unique_ptr<ImageEncoder> encoder_;  // made for the first picture
};

}  // namespace cachalot
