#include "engine/image_encoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/thread_team.h"
#include "model/queues.h"

namespace cachalot {
namespace {

int64_t bytes_of(const EncodedImage& image) {
  return std::ssize(image.rows) * static_cast<int64_t>(sizeof(bf16));
}

void append(std::vector<bf16>& rows, const bf16* row, int64_t dim) {
  rows.insert(rows.end(), row, row + dim);
}

// The span's rows from the grid's (spec: vision, section 3).
std::vector<bf16> laid_out(const EncodedImage& image, const VisionWeights& weights,
                           const std::vector<bf16>& features) {
  std::vector<bf16> rows;
  rows.reserve(static_cast<size_t>(image.tokens() * image.dim));
  append(rows, weights.start.data, image.dim);
  for (int64_t y = 0; y < image.grid_height; ++y) {
    append(rows, features.data() + y * image.grid_width * image.dim, image.grid_width * image.dim);
    append(rows, weights.newline.data, image.dim);
  }
  append(rows, weights.end.data, image.dim);
  return rows;
}

}  // namespace

ImageEncoder::ImageEncoder(std::shared_ptr<const Checkpoint> checkpoint, VisionWeights weights,
                           Isa isa, const ImageEncoderOptions& options)
    : checkpoint_(std::move(checkpoint)),
      weights_(std::move(weights)),
      options_(options),
      isa_(isa) {}

Result<std::unique_ptr<ImageEncoder>> ImageEncoder::make(
    std::shared_ptr<const Checkpoint> checkpoint, const ImageEncoderOptions& options) {
  CACHALOT_CHECK(options.backend != Backend::checked, "no checked image encoder");
  CACHALOT_TRY(VisionWeights weights, VisionWeights::bind(*checkpoint));
  if (options.backend == Backend::cuda) {
    CACHALOT_TRY([[maybe_unused]] const cuda::DeviceInfo device, cuda::find_device());
    CACHALOT_OK(weights.place_in(cuda::device_memory()));
  }
  const Isa isa = options.isa.value_or(best_isa());
  if (!supports(isa)) return fail("this CPU does not support {}", name_of(isa));
  return std::unique_ptr<ImageEncoder>(
      new ImageEncoder(std::move(checkpoint), std::move(weights), isa, options));
}

std::shared_ptr<const EncodedImage> ImageEncoder::encode(const PatchGrid& grid,
                                                         std::span<const bf16> patches,
                                                         const ImageDigest& digest) {
  const std::lock_guard lock(mutex_);
  if (auto image = cached(grid, digest)) return image;
  const int64_t ratio = config().vision_downsample_ratio;
  auto image = std::make_shared<EncodedImage>();
  image->digest = digest;
  image->grid_width = grid.cell_columns(ratio);
  image->grid_height = grid.cell_rows(ratio);
  image->dim = config().dim;
  image->rows = laid_out(*image, weights_, features(grid, patches));
  keep(image);
  return image;
}

std::vector<bf16> ImageEncoder::features(const PatchGrid& grid, std::span<const bf16> patches) {
  const int64_t side = config().vision_patch_size, width = 3 * side * side;
  CACHALOT_CHECK(std::ssize(patches) == grid.patches() * width, "{} values for {} patches",
                 patches.size(), grid.patches());
  std::vector<bf16> padded(static_cast<size_t>(grid.patches() * weights_.patch_width));
  for (int64_t i = 0; i < grid.patches(); ++i) {
    std::copy_n(patches.data() + i * width, width, padded.data() + i * weights_.patch_width);
  }
  View<const bf16> input(padded.data(), {grid.patches(), weights_.patch_width});
  const bool on_gpu = options_.backend == Backend::cuda;
  const MemorySpace& memory = on_gpu ? cuda::device_memory() : host_memory();
  const auto run = [&](auto& queue) {
    const View<bf16> rows = see(queue, config(), weights_, grid, input);
    std::vector<bf16> out(static_cast<size_t>(rows.elements()));
    memory.copy(out.data(), rows.data, static_cast<size_t>(rows.bytes()));
    return out;
  };
  // As large as this picture needs, and given back afterwards.
  Arena arena(plan_vision_workspace(config(), weights_, grid), memory);
  if (on_gpu) {
    Arena patches_arena(static_cast<size_t>(input.bytes()), memory);
    const View<bf16> brought = patches_arena.allocate<bf16>(input.shape);
    memory.copy(brought.data, input.data, static_cast<size_t>(input.bytes()));
    input = brought;
    ThreadTeam team(1);
    hybrid::Queue queue(std::move(arena), team, isa_);
    return run(queue);
  }
  if (options_.backend == Backend::reference) {
    reference::Queue queue(std::move(arena));
    return run(queue);
  }
  ThreadTeam team(options_.threads);
  cpu::Queue queue(team, isa_, std::move(arena));
  return run(queue);
}

std::shared_ptr<const EncodedImage> ImageEncoder::cached(const PatchGrid& grid,
                                                         const ImageDigest& digest) {
  const int64_t ratio = config().vision_downsample_ratio;
  for (auto at = cache_.begin(); at != cache_.end(); ++at) {
    const EncodedImage& image = **at;
    if (image.digest != digest || image.grid_width != grid.cell_columns(ratio) ||
        image.grid_height != grid.cell_rows(ratio)) {
      continue;
    }
    cache_.splice(cache_.begin(), cache_, at);
    ++hits_;
    return cache_.front();
  }
  return nullptr;
}

void ImageEncoder::keep(std::shared_ptr<const EncodedImage> image) {
  cached_bytes_ += bytes_of(*image);
  cache_.push_front(std::move(image));
  while (cached_bytes_ > options_.cache_bytes && !cache_.empty()) {
    cached_bytes_ -= bytes_of(*cache_.back());
    cache_.pop_back();
  }
}

int64_t ImageEncoder::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return cached_bytes_;
}

int64_t ImageEncoder::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

}  // namespace cachalot
