#include "engine/image_prompt.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cachalot {
namespace {

// Below zero, where no token id is: what the prefix cache knows a token of a picture by.
int64_t key_of(const ImageDigest& digest, int64_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, digest.data(), sizeof(value));
  value ^= static_cast<uint64_t>(offset + 1) * 0x9E3779B97F4A7C15u;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
  value = (value ^ value >> 27) * 0x94D049BB133111EBu;
  value ^= value >> 31;
  return -1 - static_cast<int64_t>(value >> 1);
}

}  // namespace

Result<ImagePrompt> expand_images(std::span<const int32_t> ids, int32_t image_token_id,
                                  std::span<const std::shared_ptr<const EncodedImage>> images) {
  const int64_t placeholders = std::count(ids.begin(), ids.end(), image_token_id);
  if (placeholders != std::ssize(images)) {
    return fail("the prompt has {} placeholders for {} pictures", placeholders, images.size());
  }
  ImagePrompt prompt;
  if (images.empty()) {
    prompt.ids.assign(ids.begin(), ids.end());
    return prompt;
  }
  auto expanded = std::make_shared<PromptImages>();
  expanded->dim = images.front()->dim;
  size_t next = 0;
  int32_t row = 0;
  for (const int32_t id : ids) {
    if (id != image_token_id) {
      prompt.ids.push_back(id);
      expanded->index.push_back(-1);
      expanded->key.push_back(id);
      continue;
    }
    const EncodedImage& image = *images[next++];
    expanded->rows.insert(expanded->rows.end(), image.rows.begin(), image.rows.end());
    for (int64_t i = 0; i < image.tokens(); ++i) {
      prompt.ids.push_back(id);
      expanded->index.push_back(row++);
      expanded->key.push_back(key_of(image.digest, i));
    }
  }
  prompt.images = std::move(expanded);
  return prompt;
}

}  // namespace cachalot
