// Pictures of a conversation to what the engine takes: file, pixels, vision tower, spans in the
// prompt.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "base/result.h"
#include "chat/messages.h"
#include "checkpoint/checkpoint.h"
#include "engine/image_prompt.h"
#include "vision/preprocess.h"

namespace cachalot {

struct PictureOptions {
  ImageEncoderOptions encoder;
  ImageDecodeOptions decode;
  bool local_files = false;  // locations that are paths, or file:// URLs, are read
};

// Thread-safe.
class PictureReader {
 public:
  PictureReader(std::shared_ptr<const Checkpoint> checkpoint, const PictureOptions& options);

  // `ids` has one placeholder per picture. Errors name the picture's place in the request: it
  // cannot be read or decoded, its location is of a kind that is not allowed, the model has no
  // vision tower.
  Result<ImagePrompt> expand(std::span<const int32_t> ids, std::span<const ImageRecord> pictures);
  // How many tokens that gives, without encoding anything. Errors: the same.
  Result<int64_t> count(std::span<const int32_t> ids, std::span<const ImageRecord> pictures);

 private:
  Result<std::shared_ptr<const EncodedImage>> encode(const ImageRecord& picture);
  Result<PreparedImage> prepare(const ImageRecord& picture) const;
  Result<std::vector<uint8_t>> read(const std::string& location) const;
  Result<ImageEncoder*> encoder();

  std::shared_ptr<const Checkpoint> checkpoint_;
  PictureOptions options_;
  std::mutex mutex_;
  std::unique_ptr<ImageEncoder> encoder_;  // made for the first picture
};

}  // namespace cachalot
