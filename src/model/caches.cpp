#include "model/caches.h"

#include <new>
#include <numeric>

#include "tensor/planned_memory.h"

namespace cachalot {
namespace {

// Positions per page: large enough that a page table stays small, small enough that a short
// sequence does not hold much more than it uses. A multiple of every ratio, so that groups never
// straddle pages.
constexpr int64_t kLeastPageTokens = 256;

int64_t page_tokens_for(const ModelConfig& config) {
  int64_t common = 1;
  for (int64_t source : config.kv_source_layers) common = std::lcm(common, config.ratio(source));
  return (kLeastPageTokens + common - 1) / common * common;
}

}  // namespace

template <class T>
View<T> Caches::reserve(Shape shape) {
  const auto at = static_cast<size_t>(bytes_);
  const int64_t bytes = shape.elements() * static_cast<int64_t>(sizeof(T));
  bytes_ += bytes;
  if (memory_ == nullptr) return {planned_address<T>(PlannedMemory::caches, at), shape};
  void* block = memory_->allocate(static_cast<size_t>(bytes));
  if (block == nullptr) throw std::bad_alloc();
  blocks_.emplace_back(block, ReleaseTo{memory_});
  return {static_cast<T*>(block), shape};
}

Caches::Caches(const ModelConfig& config, const CacheOptions& options, const MemorySpace* memory)
    : options_(options), memory_(memory), page_tokens_(page_tokens_for(config)) {
  pages_per_slot_ = (options.max_context + page_tokens_ - 1) / page_tokens_;
  pages_ = options.pages > 0 ? options.pages : pages_per_slot_ * options.slots;
  for (int64_t layer = 0; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    windows_.push_back(reserve<uint8_t>(
        {options.slots, config.window_size + options.rollback, window_row_bytes(config.head_dim)}));
  }
  for (int64_t layer : config.kv_source_layers) {
    const int64_t ratio = config.ratio(layer), rows = page_tokens_ / ratio;
    Source source;
    source.latents = reserve<uint8_t>({pages_, rows, latent_row_bytes(config.head_dim)});
    source.index_keys =
        reserve<uint8_t>({pages_, rows, index_key_row_bytes(config.index_head_dim)});
    if (ratio > 1) {
      source.open_rows =
          reserve<float>({options.slots, ratio - 1 + options.rollback, 2, config.head_dim});
    }
    sources_.emplace(layer, source);
  }
  token_classes_ = reserve<int32_t>({pages_, page_tokens_, 1});
  if (options.shortcut_tail > 0) {
    const int64_t rows = options.shortcut_tail + options.rollback;
    kept_copies_ = reserve<bf16>({options.slots, rows, config.hc_mult, config.dim});
    kept_mixes_ = reserve<float>({options.slots, rows, config.hc_mult});
  }
}

}  // namespace cachalot
