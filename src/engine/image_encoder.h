// Pictures to rows of the text model: the vision tower with a queue of its own, so that it runs
// beside an engine's steps, and a cache by content.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/cpu_info.h"
#include "base/number_formats.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "model/vision_tower.h"

namespace cachalot {

// SHA-256 of what the model sees of a picture.
using ImageDigest = std::array<uint8_t, 32>;

struct EncodedImage {
  ImageDigest digest = {};
  int64_t grid_width = 0, grid_height = 0;  // tokens
  int64_t dim = 0;
  // [tokens(), dim]: start; every row of the grid, a newline behind it; end.
  std::vector<bf16> rows;

  int64_t tokens() const { return grid_height * (grid_width + 1) + 2; }
};

struct ImageEncoderOptions {
  Backend backend = Backend::cpu;  // cpu, cuda or reference
  int threads = 0;                 // 0: one per CPU this process may use
  std::optional<Isa> isa;          // absent: the best this CPU has
  int64_t cache_bytes = int64_t{256} << 20;
};

// Thread-safe: pictures are encoded one after the other.
class ImageEncoder {
 public:
  // Errors: the model has no vision tower (VisionWeights::bind); an ISA this CPU lacks.
  static Result<std::unique_ptr<ImageEncoder>> make(std::shared_ptr<const Checkpoint> checkpoint,
                                                    const ImageEncoderOptions& options = {});

  // patches: [grid.patches(), 3 * patch^2], those of the picture `digest` stands for.
  std::shared_ptr<const EncodedImage> encode(const PatchGrid& grid, std::span<const bf16> patches,
                                             const ImageDigest& digest);

  const ModelConfig& config() const { return checkpoint_->config(); }
  int64_t cached_bytes() const;
  int64_t hits() const;

 private:
  ImageEncoder(std::shared_ptr<const Checkpoint> checkpoint, VisionWeights weights, Isa isa,
               const ImageEncoderOptions& options);

  std::shared_ptr<const EncodedImage> cached(const PatchGrid& grid, const ImageDigest& digest);
  std::vector<bf16> features(const PatchGrid& grid, std::span<const bf16> patches);
  void keep(std::shared_ptr<const EncodedImage> image);

  std::shared_ptr<const Checkpoint> checkpoint_;
  VisionWeights weights_;
  ImageEncoderOptions options_;
  Isa isa_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const EncodedImage>> cache_;  // the last used one first
  int64_t cached_bytes_ = 0, hits_ = 0;
};

}  // namespace cachalot
